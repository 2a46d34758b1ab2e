"""What a chart of a record shows: its arms, and the values of each. Imports no mlx."""

from __future__ import annotations

from zoo.inspect.interval import Interval, interval
from zoo_lab.plan import Chart
from zoo_lab.record import ArmRecord, ExperimentRecord


def drawn_charts(record: ExperimentRecord) -> list[Chart]:
    """The charts with measurements."""
    return [chart for chart in record.charts if drawn_arms(record, chart)]


def drawn_arms(record: ExperimentRecord, chart: Chart) -> list[ArmRecord]:
    """The arms with measurements for a chart."""
    if chart.kind == "curves":
        return [arm for arm in record.arms if curve_points(record, chart, arm)]
    arms = [arm for arm in record.arms if record.interval(arm.name, chart.y) is not None]
    return [arm for arm in arms if chart.kind == "dots" or arm_x(record, chart, arm) is not None]


def label(chart: Chart, arm: ArmRecord) -> str:
    """The name of an arm's line: its series where several arms are points of one, or panels repeat it."""
    return arm.line if chart.kind == "points" or chart.panel else arm.name


def curve_points(record: ExperimentRecord, chart: Chart, arm: ArmRecord) -> list[tuple[float, Interval]]:
    """The points of an arm's curve: at each x the mean of its runs with the interval."""
    values: dict[float, list[float]] = {}
    for run in record.runs:
        if run.arm == arm.name:
            for x, y in run.curves.get(chart.y, ()):
                values.setdefault(x, []).append(y)
    return [(x, interval(values[x])) for x in sorted(values)]


def arm_x(record: ExperimentRecord, chart: Chart, arm: ArmRecord) -> Interval | None:
    """The x of an arm: the mean of a metric, or a value of the arm."""
    if any(metric.name == chart.x for metric in record.metrics):
        return record.interval(arm.name, chart.x)
    value = arm.values.get(chart.x)
    return Interval(float(value), None, None, 1) if isinstance(value, int | float) else None
