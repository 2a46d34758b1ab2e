"""Tables of experiments and of one record, as texts. Imports no mlx."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from zoo.architecture import Experiment
from zoo.errors import ZooError
from zoo.host.registry import Registry
from zoo.lab.conclusion import number
from zoo.lab.intervals import Interval
from zoo.lab.plan import Chart
from zoo.lab.record import Record
from zoo.lab.saving import read


def listed(registry: Registry, out: Path) -> list[dict[str, Any]]:
    """Every experiment by name, with its question and the seconds that its record in `out` took, or the author's."""
    from zoo.lab.run import record_path

    rows = []
    for name, experiment in registry.experiments.items():
        plugin = registry.plugin_of(experiment)
        rows.append(
            {
                "name": name,
                "summary": experiment.summary,
                "question": experiment.question,
                "expected": experiment.expected,
                "references": list(experiment.references),
                "seeds": experiment.seeds,
                "seconds": _recorded(experiment, record_path(experiment.name, out)),
                "distribution": plugin.distribution,
                "first_party": plugin.first_party,
            }
        )
    return rows


def _recorded(experiment: Experiment, path: Path) -> float | None:
    """How long the experiment took here when it was last run as a whole, else where its author ran it."""
    try:
        record = read(path) if path.is_file() else None
    except ZooError:
        record = None
    if record is None or not record.complete or record.settings.get("quick"):
        return experiment.seconds
    return round(record.seconds, 1)


def rows(record: Record) -> list[list[str]]:
    """A table of the arms: a head, then each arm with the mean of each metric and half its interval."""
    head = ["arm", *(metric.axis for metric in record.metrics)]
    body = []
    for arm in record.arms:
        failed = record.failures(arm.name)
        cells = [text_of(record.interval(arm.name, metric.name)) for metric in record.metrics]
        body.append([f"{arm.name} ({failed} failed)" if failed else arm.name, *cells])
    return [head, *body]


def text_of(found: Interval | None) -> str:
    """A mean with half its interval: "1.234 ± 0.012"; "–" where nothing was measured."""
    if found is None:
        return "–"
    if found.low is None or found.high is None or found.high == found.low:
        return number(found.mean)
    half = (found.high - found.low) / 2
    places = min(max(1 - math.floor(math.log10(half)), 0), 9)  # two digits of what is uncertain
    if half >= 1000 or half < 1e-6:
        return f"{number(found.mean)} ± {number(half)}"
    return f"{found.mean:.{places}f} ± {half:.{places}f}".replace("-", "−")


def described(record: Record, chart: Chart) -> str:
    """What a figure shows, for who does not see it."""
    if chart.kind == "curves":
        curve = next(curve for curve in record.curves if curve.name == chart.y)
        return f"{curve.axis} against {curve.along}, a line an arm"
    axis = record.metric(chart.y).axis
    if chart.kind == "dots":
        return f"{axis} of each arm"
    names = {metric.name: metric.axis for metric in record.metrics}
    return f"{axis} against {names.get(chart.x, chart.x)}"
