"""A grid of cells to draw characters on. Imports no mlx."""

from __future__ import annotations

import re

WIDE = re.compile("[ᄀ-ᅟ⺀-〾ぁ-꓏가-힣豈-﫿︰-﹏＀-｠￠-￦\U0001f300-\U0001faff\U00020000-\U0003fffd]")


def cells(text: str) -> int:
    """The width of a text on a terminal: a Chinese character takes two cells."""
    return len(text) + len(WIDE.findall(text)) if not text.isascii() else len(text)


def wrapped(text: str, room: int) -> list[str]:
    """A text in lines of at most `room` cells, broken between words, or within a word that is longer than a line."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(longer) <= room:
            lines[-1] = longer
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if cells(lines[-1] + character) > room:
                lines.append("")
            lines[-1] += character
    return lines


class Canvas:
    """Characters and their styles, row 0 at the bottom."""

    def __init__(self, width: int, height: int) -> None:
        self.grid = [[(" ", "")] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write a text from left to right; what lies outside is left out."""
        row = self.grid[y]
        for character in text:
            taken = cells(character)
            if x >= 0 and x + taken <= len(row):
                row[x] = (character, style)
                if taken == 2:
                    row[x + 1] = ("", style)
            x += taken

    def lines(self) -> list[list[tuple[str, str]]]:
        """The rows from top to bottom, neighbours of one style together, as pairs of a style and a text."""
        found = []
        for row in reversed(self.grid):
            line: list[tuple[str, str]] = []
            for character, style in row:
                if line and line[-1][0] == style:
                    line[-1] = (style, line[-1][1] + character)
                else:
                    line.append((style, character))
            found.append(line)
        return found
