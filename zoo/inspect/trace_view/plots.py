"""Pictures of a trace by matplotlib, for notebooks. Axes: T tokens, S attended tokens, H heads, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.errors import PromptError
from zoo.inspect.trace_view.build_view import ViewBuilder
from zoo.inspect.trace_view.summaries import as_rows
from zoo.inspect.tracing.traced_run import Trace

ACROSS = 4  # small multiples side by side
MOST_LABELS = 48  # tokens named along an axis
COLOURS = "viridis"  # even in lightness, and read by the colour-blind
SIGNED = "PuOr"


def plot(
    trace: Trace, address: str, *, head: int | None = None, step: int = 0, count: int = 10, size: float = 2.6
) -> Any:
    """The matplotlib Figure of one value of a trace.

    A pattern of attention (H, T, S) is one map a head, or that of `head` alone; any other value a heat map with a row a
    token. "lens" is the logit lens, tokens by layers; "choices" the `count` likeliest tokens of generated token `step`
    before and after each stage of sampling. `size` is a map's width in inches. PromptError for an address, a head or a
    step that is not there, or where matplotlib is missing.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise PromptError(
            "plots need matplotlib, which the extra `plots` brings: pip install 'mlx-zoo[plots]'"
        ) from error
    viewer = ViewBuilder(trace)
    if address == "lens":
        return _lens(trace, viewer, size)
    if address == "choices":
        return _choices(trace, viewer, step, count)
    value, axes = trace[address], trace.about(address).axes.split()[1:]
    if value.ndim == 3 and axes[:2] == ["H", "T"] and axes[2:] in (["S"], ["M"]):
        return _pattern(trace, viewer, address, head, size)
    return _heat(viewer, address, value, axes)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _names(viewer: ViewBuilder, track: str, count: int) -> list[str]:
    pieces = next(t.pieces for t in viewer.tracks if t.name == track)
    return [_visible(piece.text) for piece in pieces[:count]]


def _visible(text: str) -> str:
    """A token's text in visible signs; a dollar sign begins a formula in matplotlib."""
    return (text or "∅").replace(" ", "␣").replace("\n", "⏎").replace("$", r"\$")


def _label(axis: Any, names: Sequence[str], **options: Any) -> None:
    if len(names) <= MOST_LABELS:
        axis.set_ticks(range(len(names)), names, fontsize=7, **options)


def _pattern(trace: Trace, viewer: ViewBuilder, address: str, head: int | None, size: float) -> Any:
    value = trace[address]
    if head is not None and not 0 <= head < len(value):
        raise PromptError(f"`head`: {address} has no head {head}; they are numbered 0 to {len(value) - 1}")
    heads = range(len(value)) if head is None else [head]
    size = size if head is None else 2 * size
    columns = min(len(heads), ACROSS)
    lines = -(-len(heads) // columns)
    pattern = viewer.pattern(address)
    figure = _figure(size * columns + 1, size * lines + 0.9)
    panels = figure.subplots(lines, columns, squeeze=False)
    for panel in panels.flat[len(heads) :]:
        panel.set_axis_off()
    for index, (panel, number) in enumerate(zip(panels.flat, heads, strict=False)):
        image = panel.imshow(value[number], cmap=COLOURS, vmin=0, vmax=1)
        panel.set_title(f"head {number}", fontsize=9)
        _label(panel.xaxis, _names(viewer, pattern.columns, value.shape[2]), rotation=90)
        _label(panel.yaxis, _names(viewer, pattern.rows, value.shape[1]) if index % columns == 0 else [])
        if index % columns:
            panel.set_yticks([])
    figure.colorbar(image, ax=panels, shrink=0.8, label="share of each row")
    figure.suptitle(address, fontsize=10)
    return figure


def _heat(viewer: ViewBuilder, address: str, value: np.ndarray, axes: Sequence[str]) -> Any:
    rows = as_rows(value, axes)
    stage = viewer.summary(address, address)
    figure = _figure(9, min(max(0.24 * len(rows) + 1.2, 2), 12))
    panel = figure.subplots()
    most = float(np.abs(rows).max()) or 1.0
    signed = bool((rows < 0).any())
    image = panel.imshow(
        rows, aspect="auto", cmap=SIGNED if signed else COLOURS, vmin=-most if signed else 0, vmax=most
    )
    if stage.track:
        _label(panel.yaxis, _names(viewer, stage.track, len(rows)))
    panel.set_xlabel(stage.summary, fontsize=8)
    figure.colorbar(image, ax=panel, label=stage.unit or None)
    figure.suptitle(f"{address}  ({stage.axes})  {' × '.join(map(str, stage.shape))}", fontsize=10)
    return figure


def _lens(trace: Trace, viewer: ViewBuilder, size: float) -> Any:
    readings = trace.lens(1)
    if not readings:
        raise PromptError("lens: no head of this model reads its residual stream layer by layer")
    best = np.array([[row[0] for row in reading.probabilities] for reading in readings]).T  # (T, layers)
    ids = [[row[0] for row in reading.tokens] for reading in readings]
    figure = _figure(max(1.25 * len(readings), 3) + 2, 0.28 * len(best) + 1.4)
    panel = figure.subplots()
    image = panel.imshow(best, aspect="auto", cmap=COLOURS, vmin=0, vmax=1)
    names = {
        piece.id: _visible(piece.text)[:14]
        for piece in viewer.pieces(sorted({id for column in ids for id in column}))
    }
    for column, tokens in enumerate(ids):
        for row, id in enumerate(tokens):
            colour = "black" if best[row, column] > 0.6 else "white"
            panel.text(column, row, names[id], ha="center", va="center", fontsize=7, color=colour)
    _label(panel.xaxis, [reading.address.replace("layers.", "layer ") for reading in readings], rotation=30)
    _label(panel.yaxis, _names(viewer, viewer.track_of(readings[0].address), len(best)))
    figure.colorbar(image, ax=panel, label="probability of the likeliest token")
    return figure


def _choices(trace: Trace, viewer: ViewBuilder, step: int, count: int) -> Any:
    choices = trace.choices(count)
    if not 0 <= step < len(choices):
        raise PromptError(f"`step`: there is no choice {step}; the run has {len(choices)}")
    choice = choices[step]
    names = [_visible(piece.text) for piece in viewer.pieces(choice.candidates)]
    figure = _figure(2.6 * len(choice.stages) + 1, 0.26 * len(names) + 1.2)
    panels = figure.subplots(1, len(choice.stages), sharey=True, squeeze=False)[0]
    for panel, stage in zip(panels, choice.stages, strict=True):
        picked = ["#b5560b" if id == choice.token else "#30568a" for id in choice.candidates]
        panel.barh(range(len(names)), stage.probabilities, color=picked)
        panel.set_xlim(0, 1)
        setting = "" if stage.setting is None else f" {stage.setting:g}"
        panel.set_title(stage.name.replace("_", "-") + setting, fontsize=9)
    panels[0].set_yticks(range(len(names)), names, fontsize=8)
    panels[0].invert_yaxis()
    figure.supxlabel("probability", fontsize=9)
    return figure
