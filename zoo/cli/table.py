"""Aligned columns of text, for a terminal and for a pipe alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def width(text: str) -> int:
    """Columns that text takes on a terminal, where a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def table(rows: Sequence[Sequence[str]], head: Sequence[str] | None = None) -> str:
    """Rows of cells as lines, each column as wide as its widest cell."""
    lines = [list(map(str, row)) for row in ([head, *rows] if head else rows)]
    widths = [max(width(cell) for cell in column) for column in zip(*lines, strict=True)]
    if head:
        lines.insert(1, ["─" * w for w in widths])
    return "\n".join(
        "  ".join(cell + " " * (w - width(cell)) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
