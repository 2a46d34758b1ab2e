"""The figures of a record: SVG and PNG, drawn by matplotlib, readable on light and on dark, and at a phone's width.

Axes hold curves, points, or rows of dots, each with its intervals, and names beside points.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError
from zoo.files.writing import GENERATOR, make_folder, output_file
from zoo.inspect.interval import Interval
from zoo_lab.chart_values import arm_x, curve_points, drawn_arms, drawn_charts, label
from zoo_lab.plan import Chart
from zoo_lab.record import ArmRecord, ExperimentRecord, file_name
from zoo_lab.report import axes_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue, vermilion, green, purple and brown after Okabe and Ito (2008), and grey: told apart by the colour-blind, and each
# at least 3 : 1 against white and against black. Lines differ in marker and dash besides.
COLOURS = ("#2a78c8", "#d55e00", "#009e73", "#b565a7", "#9a6b2f", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
TEXT = "#767676"
BROAD, WIDE = 32, 44  # characters in a line of the label of an upright axis, and of a level one
APART = 0.012  # of an axis's width: how far the bars of two lines at one x stand apart

Placed = tuple[float, float, str]  # a point, and the name to write beside it


def curves(
    axis: Any, record: ExperimentRecord, chart: Chart, arms: Sequence[ArmRecord], lines: Sequence[str]
) -> list[Placed]:
    """A line an arm, through the means at each x, on a band of their intervals."""
    curve = next(curve for curve in record.curves if curve.name == chart.y)
    for arm in arms:
        points = curve_points(record, chart, arm)
        name, style = label(chart, arm), _style(lines, label(chart, arm))
        xs, means = [x for x, _ in points], [found.value for _, found in points]
        axis.plot(xs, means, label=name, markersize=3.5, linewidth=1.6, **style)
        bounds = [(x, found.low, found.high) for x, found in points if found.low is not None]
        if bounds:
            axis.fill_between(*zip(*bounds, strict=True), color=style["color"], alpha=0.18, linewidth=0)
    if chart.log_x:
        _ticks(axis, sorted({x for arm in arms for x, _ in curve_points(record, chart, arm)}))
    axis.set_xlabel(textwrap.fill(curve.along_axis, WIDE))
    axis.set_ylabel(textwrap.fill(curve.axis, BROAD))
    return []


def points(
    axis: Axes, record: ExperimentRecord, chart: Chart, arms: Sequence[ArmRecord], lines: Sequence[str]
) -> list[Placed]:
    """A metric against another, or against a value of the arms: a line a series, with bars for the intervals."""
    metrics = {metric.name: metric for metric in record.metrics}
    placed = []
    names = list(dict.fromkeys(arm.line for arm in arms))
    for name in names:
        measured = [
            (x, y, arm.name)
            for arm in arms
            if arm.line == name
            and (x := arm_x(record, chart, arm))
            and (y := record.interval(arm.name, chart.y))
        ]
        measured.sort(key=lambda point: point[0].value)
        xs, ys = [x for x, _, _ in measured], [y for _, y, _ in measured]
        placed += [(x.value, y.value, arm) for x, y, arm in measured]
        axis.errorbar(
            [x.value for x in xs],
            [y.value for y in ys],
            yerr=_bars(ys),
            xerr=_bars(xs) if chart.x in metrics else None,
            label=name,
            markersize=5,
            linewidth=1.4,
            capsize=3,
            **_style(lines, name),
        )
    axis.set_xlabel(textwrap.fill(metrics[chart.x].axis if chart.x in metrics else chart.x, WIDE))
    axis.set_ylabel(textwrap.fill(metrics[chart.y].axis, BROAD))
    if chart.x not in metrics:
        _ticks(axis, sorted({x for x, *_ in placed}))
        _move_apart(axis, len(names))
    elif not chart.log_x:
        axis.locator_params(axis="x", nbins=5)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:g}")
    if chart.labels:
        axis.margins(x=0.12, y=0.15)
    return placed if chart.labels else []


def dots(
    axis: Axes, record: ExperimentRecord, chart: Chart, arms: Sequence[ArmRecord], lines: Sequence[str]
) -> list[Placed]:
    """A row an arm: each run a faint dot, the mean with its interval."""
    for row, arm in enumerate(arms):
        mean = record.interval(arm.name, chart.y)
        assert mean is not None
        style, values = _style(lines, arm.name), record.values(arm.name, chart.y)
        axis.plot(values, [row] * len(values), ".", color=style["color"], alpha=0.45, markersize=6)
        axis.errorbar(
            mean.value, row, xerr=_bars([mean]), color=style["color"], marker=style["marker"], capsize=4
        )
    axis.set_yticks(range(len(arms)), [textwrap.fill(arm.name, 24) for arm in arms])
    axis.set_ylim(len(arms) - 0.5, -0.5)
    axis.set_xlabel(textwrap.fill(record.metric(chart.y).axis, WIDE))
    return []


DRAWN: dict[str, Callable[..., list[Placed]]] = {"curves": curves, "points": points, "dots": dots}


def _style(lines: Sequence[str], name: str) -> dict[str, Any]:
    number = lines.index(name)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
    }


def _bars(found: Sequence[Interval]) -> list[list[float]]:
    """The lengths of error bars below and above the means."""
    return [
        [0.0 if each.low is None else each.value - each.low for each in found],
        [0.0 if each.high is None else each.high - each.value for each in found],
    ]


def _ticks(axis: Axes, values: Sequence[float]) -> None:
    """Ticks at the values themselves, where these are few."""
    if len(values) <= 10:
        axis.set_xticks(values, [f"{x:g}" for x in values])
        axis.xaxis.minorticks_off()


def _move_apart(axis: Any, lines: int) -> None:
    """Move each line and its bars sideways a little, so that bars at one x do not cover each other."""
    from matplotlib.transforms import ScaledTranslation

    for number, container in enumerate(axis.containers):
        across = (number - (lines - 1) / 2) * APART
        shift = ScaledTranslation(across * axis.figure.get_figwidth(), 0, axis.figure.dpi_scale_trans)
        line, caps, bars = container
        for part in (line, *caps, *bars):
            part.set_transform(part.get_transform() + shift)


SIZE = 9  # of a name, in points
HIGH, BROAD_LETTER = 10.5, 5.3  # of a line, and of a letter on average
GAP = 9  # between a point and its name, beyond the bars' caps
# Sides and heights, the nearest first: a little above the point, where its bar is in nobody's way.
PLACES = [(right, 6 + sign * step * 3.0) for step in range(60) for sign in (1, -1) for right in (True, False)]


def write_labels(figure: Figure, names: Sequence[tuple[Any, float, float, str]]) -> None:
    """Write each name, of a point (x, y) in some axes, as near to it as there is room; the upper ones come first.

    None covers another, or a point. One that is moved away is joined to its point by a thin line.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # places the parts, so that their coordinates are known
    figure.set_layout_engine("none")
    unit = figure.dpi / 72  # pixels in a point
    placed = [(axis, axis.transData.transform((x, y)), (x, y), text) for axis, x, y, text in names]
    taken = [Bbox([pixel, pixel]).padded(5 * unit) for _, pixel, *_ in placed]
    for axis in dict.fromkeys(axis for axis, *_ in names):
        for bars in (bars for container in axis.containers for bars in container.lines[2]):
            taken += [Bbox(axis.transData.transform(bar)).padded(unit, 0) for bar in bars.get_segments()]

    def box(pixel: Any, text: str, right: bool, shift: float) -> Bbox:
        width = len(text) * BROAD_LETTER * unit
        left = pixel[0] + (GAP * unit if right else -GAP * unit - width)
        return Bbox.from_bounds(left, pixel[1] + (shift - HIGH / 2) * unit, width, HIGH * unit)

    def has_room(axis: Axes, name: Bbox) -> bool:
        inside = axis.bbox.x0 <= name.x0 and name.x1 <= figure.bbox.x1
        within = axis.bbox.y0 <= name.y0 and name.y1 <= axis.bbox.y1
        return inside and within and not any(map(name.fully_overlaps, taken))

    for axis, pixel, point, text in sorted(placed, key=lambda each: -each[1][1]):
        free = (place for place in PLACES if has_room(axis, box(pixel, text, *place)))
        right, shift = next(free, (True, 0.0))
        taken.append(box(pixel, text, right, shift))
        line = dict(arrowstyle="-", color=TEXT, linewidth=0.6, shrinkA=0)
        axis.annotate(
            text,
            point,
            xytext=(GAP if right else -GAP, shift),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=SIZE,
            color=TEXT,
            arrowprops=line if abs(shift) > HIGH else None,
        )


WIDTH = 4.7  # inches: about 450 CSS pixels, whose letters can still be read at 360
HEIGHT, ROW = 3.1, 0.36  # of a chart's panel, and of one row of dots
CROWDED = 8  # names, for which a panel is higher
LINE = 46  # characters in a line of a title
PIXELS = 160  # an inch, in a PNG

STYLE: Any = {
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "zoo",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "legend.fontsize": 9,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color"),
        TEXT,
    ),
}


FORMATS = ("svg", "png")


def draw(
    record: ExperimentRecord, folder: Path, formats: Sequence[str] = FORMATS, *, overwrite: bool = False
) -> list[Path]:
    """Write every chart of a record as `folder`/EXPERIMENT-CHART in each format; returns their paths.

    A chart of which nothing was measured is left out. ZooError where matplotlib is missing, or a file cannot be written:
    one that the zoo did not draw is replaced only if `overwrite`.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise ZooError(
            "figures need matplotlib, which the extra plots brings: pip install 'mlx-zoo[plots]'"
        ) from error
    written = []
    with matplotlib.rc_context(STYLE):
        for chart in drawn_charts(record):
            figure = _figure(record, chart)
            for suffix in formats:
                path = folder / f"{file_name(record.experiment)}-{chart.name}.{suffix}"
                _write(figure, path, f"{record.question} {axes_text(record, chart)}", overwrite)
                written.append(path)
    return written


def _write(figure: Figure, path: Path, title: str, overwrite: bool) -> None:
    """Write a figure, whole or not at all; an SVG has a title for screen readers."""
    metadata = {"Date": None, "Creator": GENERATOR} if path.suffix == ".svg" else {"Software": GENERATOR}
    make_folder(path.parent)
    with output_file(path, overwrite) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=PIXELS, transparent=True, metadata=metadata)
        if path.suffix == ".svg":
            start, opening, rest = part.read_text(encoding="utf-8").partition("<svg ")
            named = f' role="img" {rest}'.replace(">", f">\n<title>{escape(title)}</title>", 1)
            part.write_text(start + opening.rstrip() + named, encoding="utf-8")


def _figure(record: ExperimentRecord, chart: Chart) -> Figure:
    """One chart as a figure, a panel above the other; it needs no display."""
    from matplotlib.figure import Figure

    arms = drawn_arms(record, chart)
    panels = list(dict.fromkeys(arm.values.get(chart.panel) for arm in arms)) if chart.panel else [None]
    lines = list(dict.fromkeys(label(chart, arm) for arm in arms))
    # An arm has one colour in all figures of its record.
    styled = list(dict.fromkeys(label(chart, arm) for arm in record.arms))
    named = chart.kind == "dots" or chart.labels or len(lines) < 2
    columns = 1 if max(map(len, lines)) > 22 else 2
    title = textwrap.fill(record.question, LINE)
    height = _height(chart, len(panels), len(arms), title, 0 if named else len(lines) // columns)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(title, fontsize=11, color=TEXT, x=0.02, ha="left")
    axes = figure.subplots(len(panels), 1, sharex=True, sharey=chart.kind != "dots", squeeze=False)[:, 0]
    names = []
    for axis, panel in zip(axes, panels, strict=True):
        if chart.log_x:
            axis.set_xscale("log")
        if chart.log_y:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axis.grid(True, axis="x" if chart.kind == "dots" else "y", color=TEXT, alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
        some = [arm for arm in arms if not chart.panel or arm.values.get(chart.panel) == panel]
        names += [(axis, *point) for point in DRAWN[chart.kind](axis, record, chart, some, styled)]
        if chart.panel:
            title = f"{panel:g} {chart.panel}" if isinstance(panel, int | float) else str(panel)
            axis.set_title(title, loc="left", fontsize=10)
        if axis is not axes[-1]:
            axis.set_xlabel("")
        if chart.mark is not None:
            x, text = chart.mark
            axis.axvline(x, color=TEXT, linewidth=1, linestyle=":")
            beside: Any = dict(xytext=(4, -2), textcoords="offset points", va="top")
            axis.annotate(text, (x, 1), xycoords=("data", "axes fraction"), fontsize=9, color=TEXT, **beside)
    if not named:
        legends = [axis.get_legend_handles_labels() for axis in axes]
        handles = {text: handle for pair in legends for handle, text in zip(*pair, strict=True)}
        where: Any = dict(loc="outside lower left", ncols=columns, columnspacing=1.2, handlelength=2.4)
        figure.legend(handles.values(), handles.keys(), **where)
    if names:
        write_labels(figure, names)
    return figure


def _height(chart: Chart, panels: int, arms: int, title: str, legend: int) -> float:
    """The height of a figure in inches: title, panels and the rows of the legend."""
    if chart.kind == "dots":
        panel = arms * ROW + 0.9
    elif chart.labels and arms > CROWDED:
        panel = HEIGHT * 1.5
    else:
        panel = HEIGHT if panels == 1 else HEIGHT * 0.75
    return 0.4 + 0.19 * title.count("\n") + panels * panel + 0.2 * legend
