"""The samples of several models as figures, each with its interval and its difference from the first model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zoo.cli.terminal import table
from zoo.inspect.interval import LEVEL, Interval
from zoo_evaluate.sample import Sample

Judged = Sequence[tuple[str, Mapping[str, Sample]]]  # the samples of each model by the names of their metrics


@dataclass(frozen=True)
class Figure:
    """A metric of one model with its interval; `difference` from the first model's, None where there is none."""

    metric: str
    model: str
    better: str
    value: Interval
    difference: Interval | None

    def as_json(self) -> dict[str, Any]:
        """The figure as JSON values."""
        return asdict(self)


def figures(judged: Judged) -> list[Figure]:
    """The figures of every metric, in the order of the first model's."""
    (_, first), *_ = judged
    names = dict.fromkeys(name for _, samples in judged for name in samples)
    lines = []
    for metric in names:
        for number, (model, samples) in enumerate(judged):
            if metric in samples:
                sample = samples[metric]
                against = first.get(metric) if number else None
                difference = None if against is None else sample.minus(against)
                lines.append(Figure(metric, model, sample.better, sample.interval(), difference))
    return lines


def shown(found: Sequence[Figure], several: bool) -> str:
    """The figures as a table; of `several` models each metric has a row a model, with the difference from the first."""
    level = f"{100 * LEVEL:.0f} % interval"
    head = ["metric", *(["model"] if several else []), "value", level]
    head += ["difference", level] if several else []
    rows = []
    for figure in found:
        row = [figure.metric, *([figure.model] if several else []), *_cells(figure.value)]
        rows.append([*row, *(_cells(figure.difference, signed=True) if several else [])])
    return table(rows, head, repeated=2 if several else 1)


def _cells(found: Interval | None, signed: bool = False) -> list[str]:
    """A value and its interval."""
    if found is None:
        return ["–", "–"]
    value = _number(found.value, signed)
    if found.low is None or found.high is None:
        return [value, "–"]
    return [value, f"{_number(found.low, signed)} to {_number(found.high, signed)}"]


def _number(value: float, signed: bool) -> str:
    """A number in four digits, with a true minus; `signed` writes a plus, too."""
    return f"{value:{'+' if signed and value else ''}.4g}".replace("-", "−")
