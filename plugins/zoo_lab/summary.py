"""Tables of experiments and of one record, as texts. Imports no mlx."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from zoo.architecture import Experiment
from zoo.errors import ZooError
from zoo.host.registry import Registry
from zoo_lab.conclusion import number
from zoo_lab.intervals import Interval, interval
from zoo_lab.plan import Chart
from zoo_lab.record import ArmRecord, ExperimentRecord
from zoo_lab.record_file import read

FEW = 6  # arms, of which a description of a figure tells every value


def listed(registry: Registry, out: Path) -> list[dict[str, Any]]:
    """Every experiment by name, with its question and the seconds that its record in `out` took, or the author's."""
    from zoo_lab.run import record_path

    rows = []
    for name, experiment in registry.table(Experiment).listed().items():
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
    """The seconds of the last complete run here, else those that its author states."""
    try:
        record = read(path) if path.is_file() else None
    except ZooError:
        record = None
    if record is None or not record.complete or record.settings.get("quick"):
        return experiment.seconds
    return round(record.seconds, 1)


def rows(record: ExperimentRecord) -> list[list[str]]:
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


def axes_text(record: ExperimentRecord, chart: Chart) -> str:
    """The axes of a figure, in words."""
    if chart.kind == "curves":
        curve = next(curve for curve in record.curves if curve.name == chart.y)
        return f"{curve.axis} against {curve.along}, a line an arm"
    axis = record.metric(chart.y).axis
    if chart.kind == "dots":
        return f"{axis} of each arm"
    names = {metric.name: metric.axis for metric in record.metrics}
    return f"{axis} against {names.get(chart.x, chart.x)}"


def alt_text(record: ExperimentRecord, chart: Chart) -> str:
    """The text alternative of a figure: its axes, and each arm's value, or the extremes where there are many."""
    found = [(arm.name, ends) for arm in record.arms if (ends := _values(record, chart, arm))]
    values = [(f"{name}: {text_of(interval(ends))}", sum(ends) / len(ends)) for name, ends in found]
    texts = [text for text, _ in values]
    if len(values) > FEW:
        lowest, highest = (extreme(values, key=lambda value: value[1])[0] for extreme in (min, max))
        texts = [f"lowest {lowest}", f"highest {highest}"]
    where = ", at the right end" if chart.kind == "curves" else ""
    return f"{axes_text(record, chart)}{where}. {'; '.join(texts)}"


def _values(record: ExperimentRecord, chart: Chart, arm: ArmRecord) -> list[float]:
    """The values of an arm's runs in a figure; of a curve its last point."""
    if chart.kind != "curves":
        return record.values(arm.name, chart.y)
    curves = (run.curves.get(chart.y) for run in record.runs if run.arm == arm.name)
    return [curve[-1][1] for curve in curves if curve]
