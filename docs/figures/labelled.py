"""A grid of values whose rows and columns have names: attention maps, similarities, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from figures.parts import number, rect, svg, text
from figures.tour_marks import grid, shade
from zoo.describe.diagram.text_width import text_width

SIZE = 13  # of letters


def labelled(
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    across: float = 22,
    down: float = 22,
    most: float | None = 1.0,
    said: Callable[[float], str] = lambda value: f"{value:.2f}",
    written: bool = False,
) -> str:
    """A picture of values (rows, columns), the names of rows on the left, those of columns upright above them.

    `most` is the value of the strongest colour, None for the largest there is. Each cell tells its value, by `said`,
    when one points at it, and has it written in where `written`.
    """
    left, longest = (max(text_width(name, SIZE) for name in names) for names in (rows, columns))
    left += 8
    upright = longest > across
    above = (20 if title else 0) + (longest if upright else SIZE) + 8
    wide, high = len(columns) * across, len(rows) * down
    strongest = most or max(abs(float(value)) for row in values for value in row)
    parts = [text(left, 14, title, size=SIZE, bold=True)] if title else []
    parts += [
        text(left - 6, above + index * down + down / 2 + 5, name, size=SIZE, anchor="end")
        for index, name in enumerate(rows)
    ]
    for index, name in enumerate(columns):
        x = left + (index + 0.5) * across
        if upright:
            turned = f'transform="rotate(-90 {number(x + 4.5)} {number(above - 6)})"'
            parts.append(text(x + 4.5, above - 6, name, size=SIZE, more=turned))
        else:
            parts.append(text(x, above - 6, name, size=SIZE, anchor="middle"))
    if not written:
        parts.append(grid(values, left, above, across, down, strongest))
    for row, cells in enumerate(values):
        for column, value in enumerate(cells):
            x, y, words = left + column * across, above + row * down, said(float(value))
            about = f"{rows[row]} × {columns[column]}: {words}"
            colour = shade(float(value) / strongest, readable=True) if written else "transparent"
            parts.append(rect(x, y, across, down, fill=colour, line="transparent", radius=0, title=about))
            if written:
                parts.append(text(x + across / 2, y + down / 2 + 4.5, words, size=12, anchor="middle"))
    return svg(left + max(wide + 2, text_width(title, SIZE) + 8), above + high + 2, parts)
