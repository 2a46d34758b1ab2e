"""A grid of cells to draw characters on. Imports no mlx."""

from __future__ import annotations

from rich.cells import cell_len


class Canvas:
    """Characters and their styles, row 0 at the bottom."""

    def __init__(self, width: int, height: int) -> None:
        self.grid = [[(" ", "")] * width for _ in range(height)]

    def put(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write a text from left to right; drop what lies outside."""
        row = self.grid[y]
        for character in text:
            taken = cell_len(character)
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
