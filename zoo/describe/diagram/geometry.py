"""Computes the positions of boxes, cells and texts in an SVG diagram. Imports no mlx.

All lengths are pixels. A column has, from left to right, the lane of residual arrows, the boxes, and the notes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from zoo.describe.diagram.arrange import Element, align, elements
from zoo.describe.diagram.model import ENDS, MARK, Box, Cell, Diagram, LayerStack, Note, boxes
from zoo.describe.diagram.text_width import lines_within, text_width

EDGE, LANE, BOX, SPACE, NOTES = 14, 30, 244, 14, 178
COLUMN = EDGE + LANE + BOX + SPACE + NOTES + EDGE
PLAIN = EDGE + LANE + BOX + EDGE  # a column of a diagram that has no notes
BETWEEN, APART = 34, 34  # between the stacks of a model; between models
MARGIN = 20
HEAD, NAME, SUMMARY = 14, 18, 12
TITLE, CELL, NOTE = 13, 11, 12
TITLE_LINE, CELL_LINE, NOTE_LINE, CELL_GAP, PAD = 18, 21, 17, 6, 9
HEIGHTS = {"gap": 14.0, "fork": 8.0, "sum": 20.0, "open": 6.0, "close": 26.0}  # of elements, and between them
OPERATORS = ("×", "+")


@dataclasses.dataclass
class Column:
    """A stack with its elements placed; `x` is its left edge, `bottom` the lowest line, from the picture's upper edge.

    `width` is that of all columns of its diagram.
    """

    diagram: Diagram
    stack: LayerStack
    elements: list[Element]
    x: float
    width: float
    bottom: float = 0.0

    def y(self, height: float) -> float:
        """The distance from the picture's upper edge to a point `height` above the lowest line."""
        return self.bottom - height

    @property
    def left(self) -> float:
        """The left edge of its boxes."""
        return self.x + EDGE + LANE

    @property
    def middle(self) -> float:
        """The x of the boxes' middle."""
        return self.left + BOX / 2

    @property
    def notes(self) -> float:
        """The left edge of its notes."""
        return self.left + BOX + SPACE


def box_height(box: Box) -> float:
    """The height of a box, its notes included."""
    return max(inside(box)[2], len(note_lines(box)) * NOTE_LINE)


def inside(box: Box) -> tuple[list[str], list[tuple[Cell, float, float, float]], float]:
    """The lines of a box's title, its cells, and their height; the rows stand from bottom to top as the data flows.

    Each cell has its left edge, its distance from the box's upper edge, and its width.
    """
    if box.role in ENDS:
        return [box.title], [], TITLE_LINE + 4
    room = BOX - 2 * PAD
    title = lines_within((MARK if box.differs else "") + box.title, room, TITLE, bold=True)
    y: float = PAD + len(title) * TITLE_LINE
    rows = [part for row in reversed(box.rows) for part in _rows(row, room)]
    placed = []
    for row in rows:
        y += CELL_GAP
        placed += [(cell, x, y, width) for cell, x, width in row]
        y += CELL_LINE
    norm = box.role == "norm" and not rows
    return title, placed, y + PAD + (2 if rows else 0) - (8 if norm else 0)


def _rows(row: Sequence[Cell], room: float) -> list[list[tuple[Cell, float, float]]]:
    """A row of cells side by side, equally wide if their texts allow it; in two rows if they find no room in one."""
    count = len(row)
    share = (room - CELL_GAP * (count - 1)) / count
    natural = [text_width(cell.title, CELL) + 10 if cell.title else 0.0 for cell in row]  # the least widths
    total = sum(natural) + CELL_GAP * (count - 1)
    if count > 1 and total > room:
        half = (count + 1) // 2
        return [*_rows(row[half:], room), *_rows(row[:half], room)]
    if max(natural) <= share:
        widths = [share] * count
    else:
        widths = [width + max(room - total, 0) / count for width in natural]
    x, placed = float(PAD), []
    for cell, width in zip(row, widths, strict=True):
        placed.append((cell, x, min(width, room)))
        x += min(width, room) + CELL_GAP
    return [placed]


def note_lines(box: Box) -> list[tuple[Note, str, bool]]:
    """The lines of a box's notes: each with its note, its text, and whether it begins the note."""
    lines = []
    for note in box.notes:
        mark = MARK if note.differs else ""
        for number, line in enumerate(lines_within(mark + note.text, NOTES - 6, NOTE, bold=note.differs)):
            lines.append((note, line, not number))
    return lines


def lay_out(diagrams: Sequence[Diagram]) -> list[list[Column]]:
    """The columns of each diagram, all of one height, with items of one role at one height."""
    groups = [
        [
            Column(
                one, stack, elements(stack, HEIGHTS, box_height), MARGIN + number * (width + BETWEEN), width
            )
            for number, stack in enumerate(one.stacks)
        ]
        for one, width in zip(diagrams, map(column_width, diagrams), strict=True)
    ]
    columns = [column for group in groups for column in group]
    height = align([column.elements for column in columns], HEIGHTS["gap"])
    for column in columns:
        column.bottom = MARGIN + max(map(_head_height, diagrams)) + height
    return groups


def column_width(diagram: Diagram) -> float:
    """The width of each of its columns, which need no place for notes where no box has any."""
    every = (box for stack in diagram.stacks for box in (stack.start, *boxes(stack.items), stack.end))
    return COLUMN if any(box.notes for box in every) else PLAIN


def stacks_width(diagram: Diagram) -> float:
    """The width of a diagram's stacks side by side."""
    return len(diagram.stacks) * (column_width(diagram) + BETWEEN) - BETWEEN


def _head_height(diagram: Diagram) -> float:
    """The height of a diagram's name, the lines about it and the names of its stacks."""
    name, about = head_lines(diagram)
    names = 26.0 if any(stack.title for stack in diagram.stacks) else 0.0
    return len(name) * 24 + len(about) * 17 + names + HEAD


def head_lines(diagram: Diagram) -> tuple[list[str], list[str]]:
    """The lines of a diagram's name, and those about it."""
    room = stacks_width(diagram)
    about = lines_within(diagram.summary, room, SUMMARY) if diagram.summary else []
    name = lines_within(diagram.name, room, NAME, bold=True) if diagram.name else []
    return name, about
