"""Marks that the tour's figures share: grids of values, pieces of text, panels side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from figures.parts import number, rect, text
from zoo.describe.diagram.text_width import text_width

LEVELS = 16  # shades of a colour: cells of one shade are one path
FAINTEST = 0.02  # share of the strongest value below which a cell stays empty
PROMPT = {"en": "The capital city of China is", "zh": "中国的首都是"}


def said(language: str, english: str, chinese: str) -> str:
    """The words of a figure in the language of the page."""
    return chinese if language == "zh" else english


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The text of each token, with ␣ for a space."""
    return [tokenizer.decode([id], skip_special_tokens=False).replace(" ", "␣") for id in ids]


def shade(value: float, *, readable: bool = False) -> str:
    """The colour of a value from −1 to 1: towards the accent above 0, towards grey below.

    `readable`: light enough for text on it.
    """
    share = min(abs(value), 1.0) * (45 if readable else 100)
    return f"color-mix(in srgb,var(--{'accent' if value >= 0 else 'quiet'}) {share:.0f}%,var(--ground))"


def grid(values: Any, x: float, y: float, width: float, height: float, most: float | None = None) -> str:
    """Values (rows, columns) as coloured cells of `width` × `height` from (x, y) on; `most` is the strongest colour's."""
    rows = [[float(value) for value in row] for row in values]
    strongest = most or max(abs(value) for row in rows for value in row) or 1.0
    paths: dict[int, list[str]] = {}
    for down, row in enumerate(rows):
        for across, value in enumerate(row):
            share = max(-1.0, min(1.0, value / strongest))
            if abs(share) > FAINTEST:
                corner = f"M{number(x + across * width)} {number(y + down * height)}"
                cell = f"{corner}h{number(width)}v{number(height)}h{number(-width)}z"
                paths.setdefault(round(share * LEVELS), []).append(cell)
    drawn = [
        f'<path d="{"".join(cells)}" style="fill:{shade(level / LEVELS)}"/>' for level, cells in paths.items()
    ]
    drawn.append(frame(x, y, len(rows[0]) * width, len(rows) * height))
    return "\n".join(drawn)


def frame(x: float, y: float, width: float, height: float) -> str:
    """The border of a grid."""
    return rect(x, y, width, height, fill="none", line="var(--edge)", radius=0)


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = "line") -> str:
    """A straight arrow, whose tip is at the second point; downwards or to the right."""
    down = abs(to_y - y) > abs(to_x - x)
    tip = (
        f"{number(to_x - 4)},{number(to_y - 6)} {number(to_x + 4)},{number(to_y - 6)}"
        if down
        else f"{number(to_x - 6)},{number(to_y - 4)} {number(to_x - 6)},{number(to_y + 4)}"
    )
    return (
        f'<path d="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}" style="stroke:var(--{colour});stroke-width:1.5"/>'
        f'<polygon points="{tip} {number(to_x)},{number(to_y)}" style="fill:var(--{colour})"/>'
    )


def chip(x: float, y: float, words: str, *, width: float, new: bool = False, size: float = 14) -> str:
    """A piece of text in a box, 26 high; one that is `new` stands out."""
    fill, line = ("var(--tint)", "var(--accent)") if new else ("var(--box)", "var(--edge)")
    box = rect(x, y, width, 26, fill=fill, line=line)
    return box + text(x + width / 2, y + 18, words, size=size, anchor="middle")


def chip_width(words: str, size: float = 14) -> float:
    """About as wide as the words are, with room at both sides."""
    return text_width(words, size) + 12


def panels(drawn: Iterable[str]) -> str:
    """Pictures side by side where there is room, under one another where there is none."""
    style = "display:flex;flex-wrap:wrap;gap:18px 22px;align-items:flex-start;justify-content:center"
    return f'<div style="{style}">{"".join(drawn)}</div>'
