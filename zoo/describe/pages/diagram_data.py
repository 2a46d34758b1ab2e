"""A diagram as JSON, for a page whose script aligns, marks and draws it. Imports no mlx.

Boxes are measured as if everything were marked, so that marking moves nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.diagram import geometry
from zoo.describe.diagram.arrange import keyed
from zoo.describe.diagram.geometry import Pixels, inside, note_lines
from zoo.describe.diagram.model import MARK, Box, Diagram, Frame, LayerStack

# What the page needs besides, to draw as `zoo.describe.diagram.svg` does.
GEOMETRY = {
    **{
        name.lower(): getattr(geometry, name)
        for name in ("EDGE", "LANE", "BOX", "SPACE", "NOTES", "COLUMN", "BETWEEN", "MARGIN", "TITLE_LINE")
    },
    **{name.lower(): getattr(geometry, name) for name in ("CELL_LINE", "NOTE_LINE", "PAD")},
    **{name: getattr(Pixels, name) for name in ("gap", "fork", "sum", "open", "close")},
    "sizes": {"title": geometry.TITLE, "cell": geometry.CELL, "note": geometry.NOTE},
    "mark": MARK,
}


def drawn(diagram: Diagram) -> list[dict[str, Any]]:
    """The stacks of a diagram: for each item its key among those of its stack, its texts, its size."""
    return [_stack(stack) for stack in diagram.stacks]


def _stack(stack: LayerStack) -> dict[str, Any]:
    keys = iter(keyed(stack.items))
    return {
        "role": stack.role,
        "title": stack.title,
        "start": box_data(stack.start, "start"),
        "items": list(_items(stack.items, keys)),
        "end": box_data(stack.end, "end"),
    }


def _items(items: Sequence[Any], keys: Iterator[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        key, _ = next(keys)
        if isinstance(item, Box):
            yield box_data(item, key)
            continue
        inner = list(_items(item.items, keys))
        if isinstance(item, Frame):
            about = {"count": item.count, "label": item.label, "path": item.path, "block": item.block}
            yield {"kind": "frame", "key": key, "items": inner, **about}
        else:
            yield {"kind": "residual", "key": key, "items": inner}


def box_data(box: Box, key: str) -> dict[str, Any]:
    """A box with its key, measured as if all of it were marked."""
    notes = tuple(dataclasses.replace(note, differs=True) for note in box.notes)
    whole = dataclasses.replace(box, notes=notes, differs=True)
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
            [note.name, note.text, _unmarked(own)] for note, own in zip(notes, lines, strict=True)
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
