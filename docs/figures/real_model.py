"""What docs/records/real_model.json says of SmolLM2, for the page on it and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from figures.plots import Axes
from figures.records import RECORDS, console, record

POCKET, REAL = "LLaMA", "SmolLM2"
NAMES = {"en": {POCKET: "pocket LLaMA", REAL: REAL}, "zh": {POCKET: "袖珍 LLaMA", REAL: REAL}}


REAL_MODEL = record("real_model.json")  # written by tools/record_real_model.py


def shown(name: str, first: int = 0, last: int | None = None) -> str:
    """A recorded command and the lines of its output from `first` to before `last`, as a block of Markdown."""
    return console(REAL_MODEL["commands"]["outputs"][name], first, last)


def row_of(name: str, beginning: str) -> int:
    """The first line of a recorded output that begins so."""
    lines = REAL_MODEL["commands"]["outputs"][name]["out"]
    return next(number for number, line in enumerate(lines) if line.startswith(beginning))


def by_depth(axes: Axes, language: str, values: dict[str, Sequence[float]], places: dict[str, float]) -> str:
    """A curve for each model over the share of its depth, its name at a height of its own."""
    for name, each in values.items():
        colour = "accent" if name == REAL else "quiet"
        points = [(at / (len(each) - 1), value) for at, value in enumerate(each)]
        axes.curve(points, colour=colour, dots=len(each) < 12)
        axes.name(0.03, places[name], NAMES[language][name], colour=colour)
    return axes.picture()


def speeds() -> dict[str, dict[str, Any]]:
    """The records of `zoo bench` that were made of this model, by their names."""
    names = sorted(path.name for path in (RECORDS / "benchmarks").glob("smollm2-*.json"))
    return {name.removesuffix(".json"): record(f"benchmarks/{name}") for name in names}


def speed_rows(found: dict[str, Any], metrics: Sequence[str]) -> list[list[str]]:
    """A row for each engine of a record: its name, and these metrics with their units and the ranges of their runs."""
    from figures.bench_tables import value
    from zoo_bench.workloads import metric_named

    return [
        [engine, *(value(figures, name, metric_named(name).unit) for name in metrics)]
        for engine, figures in found["engines"].items()
    ]
