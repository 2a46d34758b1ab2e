"""A chart of an experiment, drawn from its record in the colours of the page: curves, points or rows of dots, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from building.lab_records import record
from building.lab_words import axis_of, word

from figures.lab_marks import (
    LETTERS,
    WIDTH,
    band,
    bar,
    faint,
    legend,
    marker,
    name_points,
    powers,
    stroke,
    tick_words,
    ticks,
    title,
    value_range,
)
from figures.parts import line, text
from figures.plots import Axes, identity, log2
from figures.tour_marks import panels
from zoo.describe.diagram.text_width import text_width

if TYPE_CHECKING:
    from zoo.inspect.interval import Interval
    from zoo_lab.plan import Chart
    from zoo_lab.record import ArmRecord, ExperimentRecord

    Placed = tuple[ArmRecord, Interval, Interval]  # an arm with its x and y

ROW = 26  # of dots
APART = 4.5  # between the bars of lines at one x
MUCH = 3  # times the range of the others, beyond which they are drawn for themselves, too
FEW = 8  # names beside points, beyond which a chart is higher


def draw(language: str, name: str, chart: str) -> str:
    """The chart named `chart` of the experiment `name`. ValueError where the record has none of that name."""
    found = record(name)
    one = next((each for each in found.charts if each.name == chart), None)
    if one is None:
        raise ValueError(
            f"{name} has no chart {chart!r}, only {', '.join(each.name for each in found.charts)}"
        )
    return KINDS[one.kind](found, one, partial(word, language=language), language)


def curves(found: ExperimentRecord, chart: Chart, said: Callable[[str], str], language: str) -> str:
    """A line an arm through the means at each x, on a band of their intervals; a picture for each panel.

    Where an interval is wider than the chart, thin lines show each run in its place.
    """
    from zoo_lab.chart_values import curve_points, drawn_arms, label

    curve = next(each for each in found.curves if each.name == chart.y)
    arms = drawn_arms(found, chart)
    names = list(dict.fromkeys(label(chart, arm) for arm in arms))
    lines = {arm.name: curve_points(found, chart, arm) for arm in arms}
    xs = sorted({x for points in lines.values() for x, _ in points})
    y_range, y_ticks, y_scale = _vertical([y for points in lines.values() for _, y in points], chart.log_y)
    x_ticks = tick_words(xs if chart.log_x else ticks(0, xs[-1]))
    x_range = (xs[0], xs[-1]) if chart.log_x else (0.0, xs[-1])
    pictures = []
    for panel in dict.fromkeys(arm.values.get(chart.panel) for arm in arms):
        axes = _axes(x_range, y_range, log2 if chart.log_x else identity, y_scale, y_ticks)
        words = axis_of(curve.label, curve.unit, language)
        title(axes, f"{words} · {said(f'{panel} {chart.panel}')}" if chart.panel else words)
        axes.frame("", x_ticks, y_ticks, axis_of(curve.along, curve.along_unit, language))
        shown = [arm for arm in arms if not chart.panel or arm.values.get(chart.panel) == panel]
        for arm in shown:
            bounds = [(x, y.low, y.high) for x, y in lines[arm.name] if y.low is not None]
            low, high = ([_inside(axes, x, each[which]) for x, *each in bounds] for which in (0, 1))
            index = names.index(label(chart, arm))
            if any(below < y_range[0] or above > y_range[1] for _, below, above in bounds):
                runs = (
                    run.curves[chart.y] for run in found.runs if run.arm == arm.name and chart.y in run.curves
                )
                axes.parts += [
                    stroke([_inside(axes, *point) for point in run], index, of_run=True) for run in runs
                ]
            elif bounds:
                axes.parts.append(band(low, high, index))
        for arm in shown:
            index = names.index(label(chart, arm))
            at = [_inside(axes, x, y.value) for x, y in lines[arm.name]]
            axes.parts += [stroke(at, index), *(marker(*point, index) for point in at)]
        if chart.mark:
            _mark(axes, chart.mark[0], said(chart.mark[1]))
        pictures.append(axes.picture())
    return panels([*pictures, legend(list(map(said, names)))])


def points(found: ExperimentRecord, chart: Chart, said: Callable[[str], str], language: str) -> str:
    """A metric against another, or against a value of the arms: a line a series, with bars for the intervals.

    Where one series alone sets the scale, a second picture shows the others.
    """
    from zoo_lab.chart_values import arm_x

    placed: list[Placed] = []
    for arm in found.arms:
        x, y = arm_x(found, chart, arm), found.interval(arm.name, chart.y)
        if x is not None and y is not None:
            placed.append((arm, x, y))
    names = list(dict.fromkeys(arm.line for arm, _, _ in placed))
    pictures = [_points(found, chart, placed, names, said, language)]
    wide = _widest(found, chart, placed, names)
    if wide:
        rest = [each for each in placed if each[0].line != wide]
        pictures.append(_points(found, chart, rest, names, said, language, said(f"without: {wide}")))
    alone = len(names) == len(placed)
    more = [legend(list(map(said, names)))] if not alone and len(names) > 1 else []
    return panels([*pictures, *more])


def _widest(found: ExperimentRecord, chart: Chart, placed: Sequence[Placed], names: Sequence[str]) -> str:
    """The series without which the others have much more room, "" where there is none."""

    def room(left_out: str) -> float:
        every = [
            value for arm, _, _ in placed if arm.line != left_out for value in found.values(arm.name, chart.y)
        ]
        return max(every) - min(every)

    if chart.log_y or len(names) < 3 or len(names) == len(placed):
        return ""
    widest = min(names, key=room)
    return widest if room("") > MUCH * room(widest) else ""


def _points(
    found: ExperimentRecord,
    chart: Chart,
    placed: Sequence[Placed],
    names: Sequence[str],
    said: Callable[[str], str],
    language: str,
    about: str = "",
) -> str:
    """The picture of some arms, each in the style of its series among `names`; its title is `about`, or the metric."""
    metrics = {metric.name: metric for metric in found.metrics}
    metric = metrics[chart.y]
    alone = not about and len(names) == len(placed)  # each arm a series: told by its name, not by a style
    xs = sorted({x.value for _, x, _ in placed})
    runs = [value for arm, _, _ in placed for value in found.values(arm.name, chart.y)]
    y_range, y_ticks, y_scale = _vertical([y for _, _, y in placed], chart.log_y, runs)
    if chart.x in metrics:
        pad = 0.14 * (xs[-1] - xs[0])
        x_range = (xs[0] - pad, xs[-1] + pad)
        x_ticks = tick_words(ticks(max(x_range[0], 0.0), x_range[1], 5))
        x_label = axis_of(metrics[chart.x].label, metrics[chart.x].unit, language)
    else:
        x_range, x_ticks, x_label = (xs[0], xs[-1]), tick_words(xs), said(chart.x)
    height = 340 if chart.labels and len(placed) > FEW else 240
    inset = 12 if chart.x not in metrics else 0
    axes = _axes(x_range, y_range, identity, y_scale, y_ticks, height=height, inset=inset)
    title(axes, about or axis_of(metric.label, metric.unit, language))
    axes.frame("", x_ticks, y_ticks, x_label)
    for number, name in enumerate(names):
        index = 0 if alone else number
        shift = 0.0 if alone or chart.x in metrics else (number - (len(names) - 1) / 2) * APART
        arms = sorted((each for each in placed if each[0].line == name), key=lambda each: each[1].value)
        at = [(point[0] + shift, point[1]) for _, x, y in arms for point in [_inside(axes, x.value, y.value)]]
        if len(at) > 1:
            axes.parts.append(stroke(at, index))
        for (left, top), (arm, _, y) in zip(at, arms, strict=True):
            values = found.values(arm.name, chart.y)
            axes.parts += [faint(left, _inside(axes, axes.x[0], value)[1], index) for value in values]
            if y.low is not None and y.high is not None:
                axes.parts.append(_upright(axes, left, y.low, y.high, index))
            axes.parts.append(marker(left, top, index))
    if chart.labels:
        bars = [
            (_inside(axes, x.value, y.low), _inside(axes, x.value, y.high))
            for _, x, y in placed
            if y.low is not None and y.high is not None
        ]
        name_points(axes, [(x.value, y.value, said(arm.name)) for arm, x, y in placed], bars)
    return axes.picture()


def dots(found: ExperimentRecord, chart: Chart, said: Callable[[str], str], language: str) -> str:
    """A row an arm: each run a faint dot, the mean with its interval."""
    metric = found.metric(chart.y)
    arms = [arm for arm in found.arms if found.values(arm.name, chart.y)]
    values = [value for arm in arms for value in found.values(arm.name, chart.y)]
    means = {arm.name: each for arm in arms if (each := found.interval(arm.name, chart.y)) is not None}
    bounds = [bound for each in means.values() for bound in (each.low, each.high) if bound is not None]
    names = [said(arm.name) for arm in arms]
    left = min(max(text_width(name, LETTERS) for name in names) + 14, 0.5 * WIDTH)
    x_range = value_range(values, bounds)
    height = ROW * len(arms) + 74
    axes = Axes(x_range, (len(arms), 0), width=WIDTH, height=height, left=left, right=16)
    axes.parts.append(text(0, 15, axis_of(metric.label, metric.unit, language), size=13, bold=True))
    for value, words in tick_words(ticks(*x_range, most=5)).items():
        x, _ = axes.at(value, 0)
        axes.parts.append(line([(x, axes.top), (x, axes.bottom)], colour="edge", width=0.75))
        axes.parts.append(text(x, axes.bottom + 16, words, size=LETTERS, colour="quiet", anchor="middle"))
    for row, arm in enumerate(arms):
        mean = means[arm.name]
        x, y = axes.at(mean.value, row + 0.5)
        axes.parts.append(text(left - 10, y + 4, names[row], size=LETTERS, anchor="end"))
        axes.parts += [faint(axes.at(value, 0)[0], y, 0) for value in found.values(arm.name, chart.y)]
        if mean.low is not None and mean.high is not None:
            ends = [axes.at(min(max(bound, x_range[0]), x_range[1]), 0)[0] for bound in (mean.low, mean.high)]
            capped = (mean.low >= x_range[0], mean.high <= x_range[1])
            axes.parts.append(bar((ends[0], y), (ends[1], y), 0, capped))
        axes.parts.append(marker(x, y, 0))
    return panels([axes.picture()])


KINDS: Mapping[str, Callable[..., str]] = {"curves": curves, "points": points, "dots": dots}


def _vertical(
    found: Sequence[Interval], log: bool, runs: Sequence[float] = ()
) -> tuple[tuple[float, float], dict[float, str], Callable[[float], float]]:
    """The range, the ticks and the scale of an upright axis."""
    values = [*(each.value for each in found), *runs]
    bounds = [bound for each in found for bound in (each.low, each.high) if bound is not None]
    if log:
        marks = powers(min(values), max(values))
        return (marks[0], marks[-1]), tick_words(marks), math.log10
    y_range = value_range(values, bounds)
    return y_range, tick_words(ticks(*y_range)), identity


def _axes(
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    x_scale: Callable[[float], float],
    y_scale: Callable[[float], float],
    y_ticks: Mapping[float, str],
    *,
    height: float = 240,
    inset: float = 0,
) -> Axes:
    """Axes as wide as a phone; `inset` leaves room for bars at the first and the last x."""
    left = max(text_width(words, LETTERS) for words in y_ticks.values()) + 12
    axes = Axes(
        x_range,
        y_range,
        width=WIDTH,
        height=height,
        left=left + inset,
        right=16 + inset,
        x_scale=x_scale,
        y_scale=y_scale,
    )
    return axes


def _inside(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """The point of a pair of values; one outside of the chart is moved to its edge."""
    return axes.at(x, min(max(y, axes.y[0]), axes.y[1]))


def _upright(axes: Axes, x: float, low: float, high: float, index: int) -> str:
    """The bar of an interval at a place on the x axis."""
    bottom, top = (_inside(axes, axes.x[0], bound)[1] for bound in (low, high))
    return bar((x, bottom), (x, top), index, (low >= axes.y[0], high <= axes.y[1]))


def _mark(axes: Axes, value: float, words: str) -> None:
    """A dashed upright line at a value, with words beside it."""
    x, _ = axes.at(value, axes.y[0])
    axes.parts.append(line([(x, axes.top), (x, axes.bottom)], colour="quiet", width=1, dashed=True))
    axes.parts.append(text(x + 5, axes.top + 11, words, size=LETTERS, colour="quiet"))
