"""Measures and wraps texts for pictures and terminals. Imports no mlx.

A browser chooses the font of `system-ui`. The widths are those of a wide font, DejaVu Sans, in classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.cells import cell_len

CLASSES = (
    ("ijl.,:;|!'’", 0.36),
    ("frt()[]/-– ·", 0.43),
    ("mwMWQO@%…→×√≠Δ⊕", 0.99),
    ("ABCDEGHKNRTUVXYZ", 0.77),
)
WIDTHS = {character: width for characters, width in CLASSES for character in characters}
HAN = "\u3400-\u9fff"
CLOSING = "，。；：、）》”？！"
# A character of Chinese, or a word of others, with what may not begin a line after it; the gap before it is spaces or nothing.
PIECES = re.compile(f"( *)((?:[{HAN}]|（?[^ {HAN}{CLOSING}（]+|（)[{CLOSING}]*|[{CLOSING}]+)")
OTHER, BOLD = 0.64, 1.11  # every other character; what bold type adds


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The width of a text in pixels, in type of `size` pixels."""
    total = sum(WIDTHS.get(c, OTHER if cell_len(c) < 2 else 1.05) for c in text)
    return total * size * (BOLD if bold else 1)


def lines_within(text: str, room: float, size: float, bold: bool = False) -> list[str]:
    """A text in lines of at most `room` pixels, in type of `size` pixels."""
    return wrapped(text, room, lambda part: text_width(part, size, bold))


def wrapped(text: str, room: float, width: Callable[[str], float] = cell_len) -> list[str]:
    """A text in lines of at most `room` cells, or of the unit of `width`.

    Lines end between words, and within a word that is longer than a line. A line may end after any Chinese character, but
    does not begin with a mark of punctuation.
    """
    lines = [""]
    for gap, word in PIECES.findall(text):
        longer = f"{lines[-1]}{gap}{word}" if lines[-1] else word
        if width(longer) <= room:
            lines[-1] = longer
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if lines[-1] and width(lines[-1] + character) > room:
                lines.append("")
            lines[-1] += character
    return lines
