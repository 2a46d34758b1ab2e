"""Marks of the lab's charts: lines that differ by colour, dash and marker, intervals, ticks, legends and labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from figures.parts import line, number, svg, text
from figures.plots import Axes
from zoo.describe.diagram.text_width import text_width

LETTERS = 12  # size
WIDTH = 352  # of a chart: a phone's, so that letters keep their size
# Colours of the page, each with a dash and a marker of its own, so that no line differs by its colour alone.
STYLES = (
    ("var(--accent)", "", "circle"),
    ("var(--ink)", "6 3", "square"),
    ("var(--quiet)", "2 3", "triangle"),
    ("var(--accent)", "9 3 2 3", "hollow"),
)
MOST = 0.6  # of the values' span: how far an interval may widen an axis

Point = tuple[float, float]


def style(index: int) -> tuple[str, str, str]:
    """Colour, dash and marker of line `index`."""
    return STYLES[index % len(STYLES)]


def marker(x: float, y: float, index: int) -> str:
    """The marker of line `index` at a point."""
    colour, _, shape = style(index)
    fill, edge = ("var(--ground)", colour) if shape == "hollow" else (colour, "var(--ground)")
    paint = f'style="fill:{fill};stroke:{edge};stroke-width:{1.25 if shape == "hollow" else 0.75}"'
    if shape == "circle":
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="3.6" {paint}/>'
    corners = {
        "square": ((-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)),
        "triangle": ((0, -4.4), (4, 3), (-4, 3)),
        "hollow": ((0, -4.6), (4.6, 0), (0, 4.6), (-4.6, 0)),
    }[shape]
    points = " ".join(f"{number(x + right)},{number(y + down)}" for right, down in corners)
    return f'<polygon points="{points}" {paint}/>'


def stroke(points: Sequence[Point], index: int, *, of_run: bool = False) -> str:
    """A line through points, in the style of line `index`; thin for a single run."""
    colour, dash, _ = style(index)
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash and not of_run else ""
    width = "0.9;stroke-opacity:0.6" if of_run else "1.75"
    return f'<polyline points="{path}" style="fill:none;stroke:{colour};stroke-width:{width}"{dashed}/>'


def band(low: Sequence[Point], high: Sequence[Point], index: int) -> str:
    """The area between two lines, faint, in the colour of line `index`."""
    path = " ".join(f"{number(x)},{number(y)}" for x, y in [*low, *reversed(high)])
    return f'<polygon points="{path}" style="fill:{style(index)[0]};fill-opacity:0.16;stroke:none"/>'


def bar(start: Point, end: Point, index: int, capped: tuple[bool, bool] = (True, True)) -> str:
    """The bar of an interval between two points; an end outside of the chart has no cap."""
    (x, y), (to_x, to_y) = start, end
    across = (3.5, 0.0) if x == to_x else (0.0, 3.5)
    pieces = [f"M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}"]
    for (at_x, at_y), has in zip((start, end), capped, strict=True):
        if has:
            pieces.append(
                f"M{number(at_x - across[0])} {number(at_y - across[1])}"
                f"L{number(at_x + across[0])} {number(at_y + across[1])}"
            )
    return f'<path d="{"".join(pieces)}" style="fill:none;stroke:{style(index)[0]};stroke-width:1.25"/>'


def legend(names: Sequence[str]) -> str:
    """The names of lines beside their styles, in two columns where they are short."""
    columns = 1 if max(text_width(name, LETTERS) for name in names) > WIDTH / 2 - 42 else 2
    rows = math.ceil(len(names) / columns)
    parts = []
    for index, name in enumerate(names):
        x, y = (index // rows) * WIDTH / 2 + 4, (index % rows) * 19 + 10
        parts += [stroke([(x, y), (x + 28, y)], index), marker(x + 14, y, index)]
        parts.append(text(x + 34, y + 4, name, size=LETTERS))
    return svg(WIDTH, rows * 19 + 2, parts)


def value_range(values: Sequence[float], bounds: Sequence[float]) -> tuple[float, float]:
    """The first and last value of an axis for these values, and for the bounds of intervals as far as `MOST` allows."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) * 0.1 or 1.0
    wide = min([low, *bounds]), max([high, *bounds])
    first, last = max(wide[0], low - MOST * span), min(wide[1], high + MOST * span)
    first, last = (first - 0.05 * span, last + 0.05 * span)
    return (max(first, 0.0) if low >= 0 else first), last


def ticks(first: float, last: float, most: int = 6) -> list[float]:
    """At most `most` round values from `first` to `last`."""
    for step in _steps((last - first) / most):
        start, end = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
        if end - start < most:
            return [count * step for count in range(start, end + 1)]
    raise ValueError(f"no ticks from {first} to {last}")


def _steps(least: float) -> Iterator[float]:
    power = 10.0 ** math.floor(math.log10(least))
    for factor in (1, 2, 2.5, 5, 10, 20, 25, 50):
        if factor * power >= least:
            yield factor * power


def tick_words(values: Sequence[float]) -> dict[float, str]:
    """Ticks with the words for them."""
    return {
        value: (f"{value:,.0f}" if abs(value) >= 1000 else f"{round(value, 9):g}").replace("-", "−")
        for value in values
    }


def powers(first: float, last: float) -> list[float]:
    """The powers of ten from below `first` to above `last`."""
    return [10.0**power for power in range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)]


def title(axes: Axes, words: str) -> None:
    """The title of a chart, above its area or, where it is too long for that, from the left edge on."""
    left = max(0.0, min(axes.left, WIDTH - text_width(words, 13)))
    axes.parts.append(text(left, 15, words, size=13, bold=True))


def name_points(
    axes: Axes, named: Sequence[tuple[float, float, str]], bars: Sequence[tuple[Point, Point]]
) -> None:
    """Write a name beside each point, where it covers no other name, point or bar; a line joins one that is moved away."""
    placed = [(*axes.at(x, y), name) for x, y, name in named]
    taken: list[tuple[float, ...]] = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in placed]
    taken += [(x - 2, min(y, to_y), x + 2, max(y, to_y)) for (x, y), (_, to_y) in bars]
    for x, y, name in sorted(placed, key=lambda each: each[1]):
        box, down, start = _free(axes, x, y, text_width(name, LETTERS), taken)
        taken.append(box)
        left = box[0] if start == "start" else box[2]
        if abs(down) > 8:
            axes.parts.append(line([(x, y), (left, y + down)], colour="edge", width=0.75))
        axes.parts.append(text(left, y + down + 4, name, size=LETTERS, anchor=start))


def _free(
    axes: Axes, x: float, y: float, width: float, taken: Sequence[tuple[float, ...]]
) -> tuple[tuple[float, ...], float, str]:
    """The nearest box for a name beside (x, y), how far down it is moved, and where its text begins."""
    for step in range(80):
        for down in (step * 4.0, -step * 4.0) if step else (0.0,):
            for left, start in ((x + 9, "start"), (x - 9 - width, "end")):
                box = (left, y + down - 7, left + width, y + down + 7)
                inside = (
                    left >= axes.left
                    and box[2] <= axes.width
                    and axes.top - 6 <= box[1]
                    and box[3] <= axes.bottom + 2
                )
                if inside and not any(_overlap(box, other) for other in taken):
                    return box, down, start
    return (x + 9, y - 7, x + 9 + width, y + 7), 0.0, "start"


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def faint(x: float, y: float, index: int) -> str:
    """A small dot for one run, in the colour of line `index`."""
    return (
        f'<circle cx="{number(x)}" cy="{number(y)}" r="2.6" style="fill:{style(index)[0]};fill-opacity:0.4"/>'
    )
