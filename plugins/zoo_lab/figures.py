"""The figures of a record: SVG and PNG, drawn by matplotlib, readable on light and on dark, and at a phone's width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files.writing import GENERATOR, make_folder, output_file
from zoo_lab.panels import DRAWN, TEXT, label, measured, scales, write_labels
from zoo_lab.plan import Chart
from zoo_lab.record import ArmRecord, ExperimentRecord, file_name
from zoo_lab.report import axes_text

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
    """Write every chart of a record as `folder`/EXPERIMENT-CHART in each format; gives their paths.

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


def drawn_charts(record: ExperimentRecord) -> list[Chart]:
    """The charts with measurements."""
    return [chart for chart in record.charts if _drawn_arms(record, chart)]


def _write(figure: Any, path: Path, title: str, overwrite: bool) -> None:
    """Write a figure, whole or not at all; an SVG has a title for screen readers."""
    metadata = {"Date": None, "Creator": GENERATOR} if path.suffix == ".svg" else {"Software": GENERATOR}
    make_folder(path.parent)
    with output_file(path, overwrite) as part:
        figure.savefig(part, format=path.suffix[1:], dpi=PIXELS, transparent=True, metadata=metadata)
        if path.suffix == ".svg":
            start, opening, rest = part.read_text(encoding="utf-8").partition("<svg ")
            named = f' role="img" {rest}'.replace(">", f">\n<title>{escape(title)}</title>", 1)
            part.write_text(start + opening.rstrip() + named, encoding="utf-8")


def _drawn_arms(record: ExperimentRecord, chart: Chart) -> list[ArmRecord]:
    """The arms with measurements for a chart."""
    return [arm for arm in record.arms if measured(record, chart, arm)]


def _figure(record: ExperimentRecord, chart: Chart) -> Any:
    """One chart as a figure, a panel above the other; it needs no display."""
    from matplotlib.figure import Figure

    arms = _drawn_arms(record, chart)
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
        scales(axis, chart)
        some = [arm for arm in arms if not chart.panel or arm.values.get(chart.panel) == panel]
        names += [(axis, *point) for point in DRAWN[chart.kind](axis, record, chart, some, styled)]
        if chart.panel:
            title = f"{panel:g} {chart.panel}" if isinstance(panel, int | float) else str(panel)
            axis.set_title(title, loc="left", fontsize=10)
        if axis is not axes[-1]:
            axis.set_xlabel("")
        if chart.mark is not None:
            _mark(axis, *chart.mark)
    if not named:
        found = [axis.get_legend_handles_labels() for axis in axes]
        handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
        where = dict(loc="outside lower left", ncols=columns, columnspacing=1.2, handlelength=2.4)
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


def _mark(axis: Any, x: float, text: str) -> None:
    """A line at an x, with a text."""
    axis.axvline(x, color=TEXT, linewidth=1, linestyle=":")
    place = dict(xycoords=("data", "axes fraction"), xytext=(4, -2), textcoords="offset points", va="top")
    axis.annotate(text, (x, 1), fontsize=9, color=TEXT, **place)
