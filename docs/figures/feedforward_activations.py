"""ReLU, GELU and SiLU, drawn by the functions that models run."""

from __future__ import annotations

import mlx.core as mx

from figures.plots import Axes
from figures.tour_marks import panels
from zoo.blocks.activation import gelu, relu, silu

SAID = {
    "en": {"whole": "Activation", "near": "Around zero", "input": "input"},
    "zh": {"whole": "激活函数", "near": "零附近", "input": "输入"},
}
CURVES = (("ReLU", relu, "quiet", False), ("GELU", gelu, "accent", False), ("SiLU", silu, "ink", True))


def draw(language: str) -> str:
    """Two panels: the curves, and the same where they differ."""
    said = SAID[language]
    whole = Axes((-4, 4), (-1, 4))
    whole.frame(said["whole"], ticks(-4, 4, 2), ticks(-1, 4, 1), said["input"])
    near = Axes((-4, 1), (-0.4, 0.8))
    near.frame(said["near"], ticks(-4, 1, 1), ticks(-0.4, 0.8, 0.2), said["input"])
    for axes in (whole, near):
        for _, function, colour, dashed in CURVES:
            axes.curve(values(function, axes), colour=colour, dashed=dashed)
    near.name(-3.8, 0, "ReLU", colour="quiet", by=(0, -6))
    near.name(-0.4, -0.17, "GELU", colour="accent", by=(16, 14))
    near.name(-2.7, -0.26, "SiLU", by=(0, 18))
    return panels(axes.picture() for axes in (whole, near))


def values(function, axes: Axes) -> list[tuple[float, float]]:
    """The function at a hundred inputs, as far as the axes reach."""
    first, last = axes.x
    inputs = mx.linspace(first, last, 101)
    pairs = zip(inputs.tolist(), function(inputs).tolist(), strict=True)
    return [(x, y) for x, y in pairs if axes.y[0] <= y <= axes.y[1]]


def ticks(first: float, last: float, step: float) -> dict[float, str]:
    """Values from the first to the last, as they are written."""
    count = round((last - first) / step)
    return {
        value: f"{value:.3g}".replace("-", "−")
        for value in (round(first + step * i, 3) for i in range(count + 1))
    }
