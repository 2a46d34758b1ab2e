"""Renders diagrams as text for a terminal. Imports no mlx.

Differences have a heavy frame or the mark ≠, with or without colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from rich.cells import cell_len

from zoo.describe.diagram.arrange import Element, align, elements
from zoo.describe.diagram.model import ENDS, MARK, Box, Diagram, LayerStack
from zoo.describe.diagram.text_width import wrapped

LEAST, MOST = 34, 74  # the width of a column
BESIDE = 62  # columns at least so wide have notes beside the boxes
BETWEEN = 2
LANE, LEFT = 2, 4  # where residual arrows and boxes begin
BOX = 36  # the width of a box that has its notes beside it
LIGHT, HEAVY = "┌─┐│└┘", "┏━┓┃┗┛"
HEIGHTS = {"fork": 1, "sum": 1, "open": 1, "close": 1}  # lines

Line = list[tuple[str, str]]


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
        return [
            [
                (style, "".join(character for character, _ in run))
                for style, run in groupby(row, key=lambda cell: cell[1])
            ]
            for row in reversed(self.grid)
        ]


def to_text(diagrams: Sequence[Diagram], width: int = 80) -> str:
    """The diagrams as lines of at most `width` cells (at least 38), side by side where they fit.

    Raises nothing of its own.

    >>> from zoo.host.registry import default_registry
    >>> from zoo.describe.diagram import diagram_of, to_text
    >>> lines = to_text([diagram_of(zoo.load("llama").recipe, "llama", default_registry())], width=60).splitlines()
    >>> max(map(len, lines)) <= 60
    True
    """
    return "\n".join("".join(text for _, text in line) for line in to_spans(diagrams, width))


def to_spans(diagrams: Sequence[Diagram], width: int = 80) -> list[Line]:
    """The lines of `to_text` as pairs of a style and a text.

    Styles: "" what is plain, "title", "quiet", "line", and "differs".
    """
    lines: list[Line] = []
    for group in _groups(diagrams, width):
        if lines:
            lines.append([])
        lines += _drawn(group, width)
    return lines


def _groups(diagrams: Sequence[Diagram], width: int) -> Iterator[list[tuple[Diagram, LayerStack]]]:
    """Groups of stacks that fit side by side; the stacks of one diagram stay together where they fit."""
    fit = max((width + BETWEEN) // (LEAST + BETWEEN), 1)
    group: list[tuple[Diagram, LayerStack]] = []
    for diagram in diagrams:
        pairs = [(diagram, stack) for stack in diagram.stacks]
        if group and len(group) + len(pairs) > fit:
            yield group
            group = []
        group += pairs
        while len(group) > fit:
            yield group[:fit]
            group = group[fit:]
    if group:
        yield group


def _drawn(group: Sequence[tuple[Diagram, LayerStack]], width: int) -> list[Line]:
    room = (width - BETWEEN * (len(group) - 1)) // len(group)
    room = min(max(room, LEAST), MOST)
    pen = _Pen(room)
    columns = [elements(stack, HEIGHTS, pen.height) for _, stack in group]
    height = int(align(columns, 0))
    canvas = Canvas((room + BETWEEN) * len(group), height)
    heads = []
    for number, ((diagram, stack), column) in enumerate(zip(group, columns, strict=True)):
        pen.column(canvas, column, number * (room + BETWEEN))
        first = not number or group[number - 1][0] is not diagram
        mark = MARK if stack.differs else ""
        name = f"{diagram.name} · {mark}{stack.title.lower()}" if stack.title else diagram.name
        told = wrapped(diagram.summary, room) if first else []
        heads.append([("title", line) for line in wrapped(name, room)] + [("quiet", line) for line in told])
    lines = [
        [(style, text + " " * (room + BETWEEN - cell_len(text))) for style, text in row]
        for row in zip_longest(*heads, fillvalue=("", ""))
    ]
    return [_stripped(line) for line in (*lines, *canvas.lines())]


def _stripped(line: Line) -> Line:
    while line and not line[-1][1].rstrip():
        line.pop()
    if line:
        line[-1] = (line[-1][0], line[-1][1].rstrip())
    return line


class _Pen:
    """Draws elements in a column of `room` cells; its heights are in lines."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.beside = room >= BESIDE
        self.box_width = BOX if self.beside else room - LEFT - 2
        self.middle = LEFT + self.box_width // 2

    def height(self, box: Box) -> int:
        """The lines of a box."""
        if box.role in ENDS:
            return 1 + (box.role == "input") + (0 if self.beside else len(self._notes(box)))
        if box.role == "norm" and not box.notes and not box.rows:
            return 1
        inside = len(self._inside(box)) + 2
        return max(inside, len(self._notes(box))) if self.beside else inside

    def column(self, canvas: Canvas, column: Sequence[Element], left: int) -> None:
        """Draw a column: the line through its middle first, then the items over it."""
        middle = left + self.middle
        for y in range(int(column[0].y) + 1, int(column[-1].y)):
            canvas.put(middle, y, "│", "line")
        for element in column:
            if element.kind == "close":
                self._frame(canvas, element, left)
        for element in column:
            if element.kind == "sum":
                self._residual(canvas, element, left)
            elif element.kind == "box":
                self._box(canvas, element, left)

    def _frame(self, canvas: Canvas, element: Element, left: int) -> None:
        frame = element.item
        bottom, top, right = int(element.partner.y), int(element.y), left + self.room - 1
        style, edges = ("differs", "╔═╗║╚╝") if frame.differs else ("line", "╭─╮│╰╯")
        canvas.put(left, top, edges[0] + edges[1] * (self.room - 2) + edges[2], style)
        canvas.put(left, bottom, edges[4] + edges[1] * (self.room - 2) + edges[5], style)
        for y in range(bottom + 1, top):
            canvas.put(left, y, edges[3], style)
            canvas.put(right, y, edges[3], style)
        for y in (bottom, top):
            canvas.put(left + self.middle, y, "│", "line")
        count = f" {MARK if frame.differs else ''}{frame.count} × "
        canvas.put(left + 2, top, count, "differs" if frame.differs else "title")
        room = right - (left + self.middle) - 3
        label = f" {frame.label} " if frame.label and cell_len(frame.label) + 2 <= room else ""
        canvas.put(right - 1 - cell_len(label), top, label, style if frame.differs else "quiet")
        if frame.label and not label:
            told = wrapped(frame.label, self.room - 6)[0]
            canvas.put(left + 2, bottom, f" {told} ", style if frame.differs else "quiet")

    def _residual(self, canvas: Canvas, element: Element, left: int) -> None:
        bottom, top = int(element.partner.y), int(element.y)
        style, sign = ("differs", "differs") if element.item.differs else ("line", "title")
        lane, middle = left + LANE, left + self.middle
        canvas.put(lane, top, "╭" + "─" * (middle - lane - 2) + "→", style)
        canvas.put(middle, top, "⊕", sign)
        canvas.put(lane, bottom, "╰" + "─" * (middle - lane - 1) + "┤", style)
        for y in range(bottom + 1, top):
            canvas.put(lane, y, "│", style)

    def _box(self, canvas: Canvas, element: Element, left: int) -> None:
        box, height = element.item, int(element.height)
        top = int(element.top) - 1
        style, mark = ("differs", MARK) if box.differs else ("title", "")
        if box.role in ENDS:
            if box.role == "input":
                canvas.put(left + self.middle, top, "↑", "line")
                top -= 1
            self._centred(canvas, left, top, mark + box.title, style)
            for number, (note_style, note) in enumerate(self._notes(box)):
                if self.beside:
                    canvas.put(left + LEFT + BOX + 2, top - number, note, note_style)
                else:
                    self._centred(canvas, left, top - 1 - number, note, note_style)
            return
        if height == 1 and box.role == "norm":
            self._centred(canvas, left, top, f"{mark}[ {box.title} ]", style if box.differs else "")
            return
        inside = self._inside(box)
        edges, edge_style = (HEAVY, "differs") if box.differs else (LIGHT, "line")
        x, width = left + LEFT, self.box_width
        high = len(inside) + 2
        spare = (height - high) // 2 if self.beside else 0
        y = top - spare
        canvas.put(x, y, edges[0] + edges[1] * (width - 2) + edges[2], edge_style)
        for number, (text_style, text) in enumerate(inside):
            row = y - 1 - number
            canvas.put(x, row, edges[3] + " " * (width - 2) + edges[3], edge_style)
            canvas.put(x + 1 + (width - 2 - cell_len(text)) // 2, row, text, text_style)
        canvas.put(x, y - high + 1, edges[4] + edges[1] * (width - 2) + edges[5], edge_style)
        canvas.put(left + self.middle, y - high + 1, "▲", edge_style)
        if self.beside:
            notes = self._notes(box)
            first = top - (height - len(notes)) // 2
            for number, (note_style, note) in enumerate(notes):
                canvas.put(x + width + 2, first - number, note, note_style)

    def _centred(self, canvas: Canvas, left: int, y: int, text: str, style: str) -> None:
        canvas.put(left + self.middle - cell_len(text) // 2, y, text, style)

    def _inside(self, box: Box) -> list[tuple[str, str]]:
        """The lines in a box, each with its style: title, parts from top to bottom, and notes if they stand inside."""
        room = self.box_width - 4
        mark = MARK if box.differs else ""
        lines = [("differs" if box.differs else "title", text) for text in wrapped(mark + box.title, room)]
        for row in reversed(box.rows):
            texts = [f"{MARK if cell.differs and not box.differs else ''}{cell.title}" for cell in row]
            style = "differs" if any(cell.differs for cell in row) else ""
            texts = [text for text in texts if text]
            between = "   " if sum(map(cell_len, texts)) + 3 * len(texts) <= room else "  "
            lines += [(style, line) for line in _joined(texts, between, room)]
        if box.memory:
            lines.append(("", "↞ the encoder's output"))
        return lines if self.beside else lines + self._notes(box)

    def _notes(self, box: Box) -> list[tuple[str, str]]:
        """The lines of the notes: one a note beside the box, else as many notes a line as fit."""
        lines: list[tuple[str, str]] = []
        if self.beside:
            room = self.room - LEFT - self.box_width - 4
            for note in box.notes:
                style = "differs" if note.differs else "quiet"
                text = (MARK if note.differs else "") + note.text
                whole = wrapped(text, room)
                first, *more = whole if len(whole) == 1 else wrapped(text, room - 2)
                lines += [(style, first), *((style, f"  {line}") for line in more)]
            return lines
        for differs, style, mark in ((False, "quiet", ""), (True, "differs", MARK)):
            if texts := [mark + note.text for note in box.notes if note.differs == differs]:
                lines += [(style, line) for line in _joined(texts, " · ", self.box_width - 4)]
        return lines


def _joined(texts: Sequence[str], between: str, room: int) -> list[str]:
    """Texts in lines, broken between two texts where possible."""
    lines = [""]
    for text in texts:
        longer = f"{lines[-1]}{between}{text}" if lines[-1] else text
        if cell_len(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(text)
    return [part for line in lines for part in wrapped(line, room)]
