"""A record as a page in Markdown: question, conclusion, figures, claims, numbers, method. Imports no mlx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo_lab.conclusion import SEEN, conclusion, findings, method
from zoo_lab.record import ExperimentRecord
from zoo_lab.summary import rows

MARKS = {
    "seen": "✓ seen",
    "contrary": "✗ contrary",
    "not shown": "– not shown",
    "not measured": "– not measured",
}


def page(record: ExperimentRecord, figures: Sequence[str], data: str, code: str = "") -> str:
    """The page of one record.

    `figures` are its figures and `code` shows how the experiment is made, both as Markdown; `data` is the link to the record.
    """
    head, *body = rows(record)
    judged = [[MARKS[f.verdict], f.claim.text, f.words] for f in findings(record)]
    parts = [
        f"# {record.experiment}",
        f"**{record.question}**",
        conclusion(record),
        "## Expected",
        f"{record.expected}{_sources(record)}",
        "## Measured",
        *figures,
        _table([head, *body]),
        "## Claims",
        _table([["", "said beforehand", "measured"], *judged]),
        "## How it was run",
        f"{method(record)}",
        f"{_how(record)} [The record]({data}) has every run.",
        f"```text\n$ zoo lab {record.experiment}\n```",
        code,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def line(record: ExperimentRecord) -> str:
    """The experiment in one line of a list: a link to its page, the question, how many claims were seen."""
    found = findings(record)
    seen = sum(finding.verdict == SEEN for finding in found)
    shown = f" *{seen} of {len(found)} claims were seen.*" if found else ""
    return f"- [{record.experiment}]({file_name(record)}.md): {record.question}{shown}"


def file_name(record: ExperimentRecord) -> str:
    """The name of an experiment's files, without their suffix."""
    return record.experiment.replace("::", "-")


def _sources(record: ExperimentRecord) -> str:
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


def _how(record: ExperimentRecord) -> str:
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
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
