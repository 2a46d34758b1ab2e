"""Names written beside the points of a figure, so that none covers another, or a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zoo_lab.panels import TEXT

SIZE = 9  # of a name, in points
HIGH, BROAD = 10.5, 5.3  # of a line, and of a letter on average
GAP = 9  # between a point and its name, beyond the bars' caps
STEP, STEPS = 3.0, 60  # by which a name is moved from its point

Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels


def write_labels(figure: Any, names: Sequence[tuple[Any, float, float, str]]) -> None:
    """Write each name, of a point (x, y) in some axes, as near to it as there is room; the upper ones come first.

    One that is moved away is joined to its point by a thin line.
    """
    figure.draw_without_rendering()  # places the parts, so that their coordinates are known
    figure.set_layout_engine("none")
    unit = figure.dpi / 72  # pixels in a point
    placed = [(axis, axis.transData.transform((x, y)), x, y, text) for axis, x, y, text in names]
    taken = [_around(across, up, 5 * unit) for _, (across, up), *_ in placed]
    for axis in dict.fromkeys(axis for axis, *_ in names):
        taken += _bars(axis, unit)
    for axis, (across, up), x, y, text in sorted(placed, key=lambda each: -each[1][1]):
        frame = axis.bbox.x0, axis.bbox.y0, figure.bbox.x1, axis.bbox.y1
        right, shift = _nearest(text, across, up, unit, taken, frame)
        taken.append(_box(text, across, up + shift * unit, right, unit))
        axis.annotate(
            text,
            (x, y),
            xytext=(GAP if right else -GAP, shift),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=SIZE,
            color=TEXT,
            arrowprops=dict(arrowstyle="-", color=TEXT, linewidth=0.6, shrinkA=0)
            if abs(shift) > HIGH
            else None,
        )


def _bars(axis: Any, unit: float) -> list[Box]:
    """The boxes of the intervals' bars."""
    found = []
    for container in axis.containers:
        for bars in container.lines[2]:
            for segment in bars.get_segments():
                (left, bottom), (right, top) = axis.transData.transform(segment)
                found.append((left - unit, bottom, right + unit, top))
    return found


def _nearest(
    text: str, across: float, up: float, unit: float, taken: Sequence[Box], frame: Box
) -> tuple[bool, float]:
    """On which side of its point a name has room, and how far above it, in points."""
    for right, shift in _places():
        box = _box(text, across, up + shift * unit, right, unit)
        inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
        if inside and not any(_meet(box, other) for other in taken):
            return right, shift
    return True, 0.0


def _places() -> Iterator[tuple[bool, float]]:
    """Sides and heights, the nearest first: a little above the point, where its bar is in nobody's way."""
    for step in range(STEPS):
        for sign in (1, -1):
            for right in (True, False):
                yield right, 6 + sign * step * STEP


def _box(text: str, across: float, up: float, right: bool, unit: float) -> Box:
    width, half = len(text) * BROAD * unit, HIGH / 2 * unit
    left = across + GAP * unit if right else across - GAP * unit - width
    return left, up - half, left + width, up + half


def _around(across: float, up: float, reach: float) -> Box:
    return across - reach, up - reach, across + reach, up + reach


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
