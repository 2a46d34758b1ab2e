"""A record as a section of a page in Markdown: question, expectation, figures, numbers, what was seen. Imports no mlx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.lab.conclusion import conclusion, findings, method
from zoo.lab.plan import Chart
from zoo.lab.record import Record
from zoo.lab.summary import described, rows

MARKS = {
    "seen": "✓ seen",
    "contrary": "✗ contrary",
    "not shown": "– not shown",
    "not measured": "– not measured",
}


def section(record: Record, charts: Sequence[Chart], figures: str) -> str:
    """The section of one record; `figures` is the folder of its `charts`, as a link from the page."""
    head, *body = rows(record)
    parts = [
        f"## {record.experiment}",
        f"**{record.question}**",
        f"*Expected:* {record.expected}{_sources(record)}",
        *(f"![{described(record, chart)}]({figures}/{_file(record, chart)})" for chart in charts),
        _table([head, *body]),
        _table(
            [["", "said beforehand", "measured"]]
            + [[MARKS[f.verdict], f.claim.text, f.words] for f in findings(record)]
        ),
        f"*Seen:* {conclusion(record)}",
        f"*How:* {method(record)} {_how(record)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _file(record: Record, chart: Chart) -> str:
    return f"{record.experiment.replace('::', '-')}-{chart.name}.svg"


def _sources(record: Record) -> str:
    """The references, arXiv's as links."""
    return f" ({'; '.join(map(_linked, record.references))})" if record.references else ""


def _linked(reference: str) -> str:
    text, _, number = reference.partition(" arXiv:")
    return f"[{text.rstrip(',')}](https://arxiv.org/abs/{number})" if number else reference


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; "" without rows."""
    if len(lines) < 2:
        return ""
    head, *body = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    drawn = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in drawn)


def _how(record: Record) -> str:
    """The settings, the software, the time, and how busy the machine was."""
    loads = [run.load for run in record.runs if run.load is not None]
    busy = f", load {min(loads):.1f} to {max(loads):.1f} meanwhile" if loads else ""
    settings = "; ".join(
        f"{_spaced(key)} {_text(value)}" for key, value in record.settings.items() if key != "quick"
    )
    versions = record.versions
    return (
        f"Settings: {settings}. {len(record.runs)} runs in {record.seconds / 60:.1f} minutes on {versions['machine']}"
        f"{busy}; mlx {versions['mlx']}, {versions['backend']}, {versions['blas']}."
    )


def _spaced(key: str) -> str:
    return key.replace("_", " ")


def _text(value: Any) -> str:
    return (
        {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
