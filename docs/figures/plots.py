"""Charts for figures: a pair of axes with curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from figures.parts import line, svg, text

Scale = Callable[[float], float]


def identity(value: float) -> float:
    """The value: an axis with even steps."""
    return value


class Axes:
    """A chart's area: from values to points, with its frame and curves.

    `x` and `y` are the first and last value of each axis; `x_scale` and `y_scale` may be `math.log10`. `left`, `right`,
    `top` and `bottom` are the margins around it.
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        width: float = 340,
        height: float = 230,
        left: float = 44,
        right: float = 14,
        top: float = 28,
        bottom: float = 40,
        x_scale: Scale = identity,
        y_scale: Scale = identity,
    ) -> None:
        self.width, self.height = width, height
        self.x, self.y, self.x_scale, self.y_scale = x, y, x_scale, y_scale
        self.left, self.right = left, width - right
        self.top, self.bottom = top, height - bottom
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The point at which a pair of values stands."""
        return (
            _between(self.x_scale, *self.x, x, self.left, self.right),
            _between(self.y_scale, *self.y, y, self.bottom, self.top),
        )

    def frame(
        self,
        title: str,
        x_ticks: Mapping[float, str],
        y_ticks: Mapping[float, str],
        x_label: str = "",
    ) -> None:
        """The title, both axes with their ticks, and what the horizontal one counts."""
        self.parts.append(text(self.left, 15, title, size=13, bold=True))
        for value, words in y_ticks.items():
            _, y = self.at(self.x[0], value)
            self.parts.append(line([(self.left, y), (self.right, y)], colour="edge", width=0.75))
            self.parts.append(text(self.left - 6, y + 4, words, size=12, colour="quiet", anchor="end"))
        for value, words in x_ticks.items():
            x, _ = self.at(value, self.y[0])
            self.parts.append(text(x, self.bottom + 16, words, size=12, colour="quiet", anchor="middle"))
        if x_label:
            middle, y = (self.left + self.right) / 2, self.bottom + 34
            self.parts.append(text(middle, y, x_label, size=12, colour="quiet", anchor="middle"))

    def curve(
        self,
        points: Sequence[tuple[float, float]],
        *,
        colour: str = "accent",
        width: float = 2,
        dashed: bool = False,
        dots: bool = False,
    ) -> None:
        """A line through values, with a dot at each if `dots`."""
        placed = [self.at(x, y) for x, y in points]
        self.parts.append(line(placed, colour=colour, width=width, dashed=dashed))
        if dots:
            self.parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" style="fill:var(--{colour})"/>' for x, y in placed
            ]

    def name(
        self,
        x: float,
        y: float,
        words: str,
        *,
        colour: str = "ink",
        anchor: str = "start",
        by: tuple[float, float] = (0, 0),
    ) -> None:
        """Words at a pair of values, moved `by` so many points."""
        left, top = self.at(x, y)
        self.parts.append(text(left + by[0], top + by[1], words, size=12, colour=colour, anchor=anchor))

    def picture(self, label: str = "") -> str:
        """All of it as SVG."""
        return svg(self.width, self.height, self.parts, label)


def _between(scale: Scale, low: float, high: float, value: float, start: float, end: float) -> float:
    share = (scale(value) - scale(low)) / (scale(high) - scale(low))
    return start + (end - start) * share


def log2(value: float) -> float:
    """A scale on which each doubling takes the same length."""
    return math.log2(value)
