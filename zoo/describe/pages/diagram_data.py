"""A diagram as numbers and texts, for a page that aligns, marks and draws it itself. Imports no mlx.

The heights and lines are those with which everything has room when it is marked, so that marking moves nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zoo.describe.diagram import geometry
from zoo.describe.diagram.arrange import keyed
from zoo.describe.diagram.geometry import Pixels, inside, note_lines
from zoo.describe.diagram.model import MARK, Box, Diagram, Frame, Stack

Say = Callable[[str], str]

# What the page needs besides, to draw as `zoo.describe.diagram.svg` does.
GEOMETRY = {
    **{
        name.lower(): getattr(geometry, name)
        for name in ("EDGE", "LANE", "BOX", "SPACE", "NOTES", "COLUMN", "BETWEEN", "MARGIN", "TITLE_LINE")
    },
    **{name.lower(): getattr(geometry, name) for name in ("CELL_LINE", "NOTE_LINE", "PAD")},
    **{name: getattr(Pixels, name) for name in ("gap", "fork", "sum", "open")},
    "close": Pixels().close(Frame((), 1)),
    "sizes": {"title": geometry.TITLE, "cell": geometry.CELL, "note": geometry.NOTE},
    "mark": MARK,
}


def drawn(diagram: Diagram, say: Say = str) -> list[dict[str, Any]]:
    """The stacks of a diagram: for each item its key among those of its stack, its texts as `say` has them, its size."""
    return [_stack(stack, say) for stack in diagram.stacks]


def _stack(stack: Stack, say: Say) -> dict[str, Any]:
    keys = iter(keyed(stack.items))
    return {
        "role": stack.role,
        "title": say(stack.title) if stack.title else "",
        "start": box_data(stack.start, "start", say),
        "items": list(_items(stack.items, keys, say)),
        "end": box_data(stack.end, "end", say),
    }


def _items(items: Sequence[Any], keys: Iterator[tuple[str, Any]], say: Say) -> Iterator[dict[str, Any]]:
    for item in items:
        key, _ = next(keys)
        if isinstance(item, Box):
            yield box_data(item, key, say)
            continue
        inner = list(_items(item.items, keys, say))
        if isinstance(item, Frame):
            label = say(item.label) if item.label else ""
            about = {"count": item.count, "label": label, "path": item.path, "block": item.block}
            yield {"kind": "frame", "key": key, "items": inner, **about}
        else:
            yield {"kind": "residual", "key": key, "items": inner}


def box_data(box: Box, key: str, say: Say = str) -> dict[str, Any]:
    """A box with its key, measured as if all of it were marked."""
    notes = tuple(
        dataclasses.replace(note, text=say(note.text), key=note.name, differs=True) for note in box.notes
    )
    rows = tuple(
        tuple(dataclasses.replace(c, title=say(c.title) if c.title else "") for c in row) for row in box.rows
    )
    whole = dataclasses.replace(box, title=say(box.title), notes=notes, rows=rows, differs=True)
    content = inside(whole)
    lines: list[list[str]] = []
    for _, line, begins in note_lines(whole):
        lines += [[]] if begins else []
        lines[-1].append(line)
    found: dict[str, Any] = {
        "kind": "box",
        "key": key,
        "role": box.role,
        "title": whole.title,
        "lines": _unmarked(content.title),
        "path": box.path,
        "block": box.block,
        "height": Pixels().box(whole),
        "inner": content.height,
    }
    if notes:
        found["notes"] = [
            [note.key, note.text, _unmarked(own)] for note, own in zip(notes, lines, strict=True)
        ]
    if content.cells:
        found["cells"] = [
            [placed.cell.title, round(placed.x, 1), round(placed.y, 1), round(placed.width, 1)]
            for placed in content.cells
        ]
    if box.memory:
        found["memory"] = True
    return found


def _unmarked(lines: Sequence[str]) -> list[str]:
    """Lines that were measured with the mark, without it; a line of the mark alone is gone."""
    first, *others = lines
    plain = first.removeprefix(MARK).removeprefix(MARK.strip())
    return [plain, *others] if plain else others
