"""Aligns the items of several stacks, those of one role at one height, and marks what differs. Imports no mlx.

Heights are in whatever unit the renderer has, pixels or lines; `y` counts upwards from the bottom.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from zoo.describe.diagram.model import Box, Cell, Diagram, Frame, LayerStack, Residual


@dataclasses.dataclass
class Element:
    """What stands in a column: a "box", the "fork" and the "sum" of a residual, the "open" and "close" of a frame.

    Elements of one key in several columns stand in one line. `partner` of a sum is its fork, of a close its open.
    """

    kind: str
    item: Any
    key: str
    height: float
    y: float = 0.0
    partner: Any = None

    @property
    def top(self) -> float:
        """The upper edge."""
        return self.y + self.height


def keyed(items: Sequence[Any]) -> list[tuple[str, Any]]:
    """All items in order, each with a key made of its frame, its role and, for a norm, its place."""
    pairs: list[tuple[str, Any]] = []
    counts: dict[str, int] = {}
    for key, item in _keyed(items, "", ""):
        counts[key] = counts.get(key, 0) + 1
        pairs.append((key if counts[key] == 1 else f"{key}#{counts[key]}", item))
    return pairs


def _keyed(items: Sequence[Any], prefix: str, inside: str) -> Iterator[tuple[str, Any]]:
    last, frames = "", [item.count for item in items if isinstance(item, Frame)]
    # The frame of most layers stands beside that of others, whatever is below or above it.
    number = -frames.index(max(frames)) if frames else 0
    for item in items:
        if isinstance(item, Frame):
            key = f"{prefix}frame{number:+}"
            yield key, item
            yield from _keyed(item.items, f"{key}/", "")
            number += 1
        elif isinstance(item, Residual):
            roles = [box.role for box in item.items if isinstance(box, Box) and box.role != "norm"]
            last = roles[-1] if roles else "norm"  # its main part is the last box that is not a norm
            yield f"{prefix}{last}+", item
            yield from _keyed(item.items, prefix, last)
        elif item.role == "norm":
            place = f"{inside}{'>' if last else '<'}" if inside else f"{last}|"
            yield f"{prefix}{place}norm", item
        else:
            last = item.role
            yield f"{prefix}{last}", item


def elements(
    stack: LayerStack, heights: Mapping[str, float], box_height: Callable[[Box], float]
) -> list[Element]:
    """The elements of a stack from bottom to top, not yet placed.

    `heights` has those of a "fork", a "sum", and the "open" and "close" of a frame; that of a box includes its notes.
    """
    keys = iter(keyed(stack.items))

    def visit(items: Sequence[Any]) -> Iterator[Element]:
        for item in items:
            key, _ = next(keys)
            if isinstance(item, Box):
                yield Element("box", item, key, box_height(item))
                continue
            below, above = ("open", "close") if isinstance(item, Frame) else ("fork", "sum")
            first = Element(below, item, f"{key} {below}", heights[below])
            yield first
            yield from visit(item.items)
            yield Element(above, item, f"{key} {above}", heights[above], partner=first)

    start, end = (Element("box", box, box.role, box_height(box)) for box in (stack.start, stack.end))
    return [start, *visit(stack.items), end]


def align(columns: Sequence[Sequence[Element]], gap: float) -> float:
    """Set `y` of all elements, the same for elements of one key; returns the height of the highest column."""
    order: list[str] = []
    aligned: list[set[str]] = []
    for column in columns:
        at, own = -1, set()
        for element in column:
            if element.key in order:
                index = order.index(element.key)
                if index <= at:
                    continue
                at = index
            else:
                at += 1
                order.insert(at, element.key)
            own.add(element.key)
        aligned.append(own)
    places = [0] * len(columns)

    def place(number: int, until: str | None) -> Element | None:
        """Place a column's elements below the one of this key, and return that one at its lowest place."""
        column = columns[number]
        while places[number] < len(column):
            element = column[places[number]]
            below = column[places[number] - 1] if places[number] else None
            element.y = below.top + gap if below else 0.0
            if element.key == until:
                return element
            places[number] += 1
        return None

    for key in order:
        level = [e for n, own in enumerate(aligned) if key in own and (e := place(n, key))]
        highest = max(element.y for element in level)
        for element in level:
            element.y = highest
        for number, own in enumerate(aligned):
            if key in own:
                places[number] += 1
    for number in range(len(columns)):
        place(number, None)
    return max((column[-1].top for column in columns), default=0.0)


MAIN = "frame+0"  # the frame of most layers
Others = list[dict[str, Any]]  # the items of the stack in each other diagram that has it, by key


def marked(diagrams: Sequence[Diagram]) -> tuple[Diagram, ...]:
    """The diagrams with `differs` set on whatever is not in all of them, or not the same.

    Stacks are compared by role, decoder with decoder. Where every model has a single stack, these are compared. A box
    differs when its title does, or when the others have none in its place; its notes and the parts inside are compared
    one by one. Raises nothing of its own.

    >>> from zoo.host.registry import default_registry
    >>> from zoo.describe.diagram import diagram_of, marked
    >>> recipes = {name: zoo.load(name).recipe for name in ("llama", "qwen3")}
    >>> llama, qwen3 = marked([diagram_of(recipe, name, default_registry()) for name, recipe in recipes.items()])
    >>> llama.name, qwen3.name
    ('llama', 'qwen3')
    """
    if len(diagrams) < 2:
        return tuple(diagrams)
    by_role = any(len(diagram.stacks) > 1 for diagram in diagrams)
    known = [
        {stack.role if by_role else "": dict(_all(stack)) for stack in diagram.stacks} for diagram in diagrams
    ]

    def changed(index: int, stack: LayerStack) -> LayerStack:
        role = stack.role if by_role else ""
        others = [stacks[role] for number, stacks in enumerate(known) if number != index and role in stacks]
        if not others:
            return dataclasses.replace(stack, differs=True)  # with all that is in it
        keys = iter(_all(stack))
        start = _marked_box(stack.start, next(keys)[0], others)
        items = _marked(stack.items, keys, others)
        end = _marked_box(stack.end, next(keys)[0], others)
        return dataclasses.replace(stack, start=start, items=items, end=end)

    return tuple(
        dataclasses.replace(diagram, stacks=tuple(changed(index, stack) for stack in diagram.stacks))
        for index, diagram in enumerate(diagrams)
    )


def _all(stack: LayerStack) -> list[tuple[str, Any]]:
    return [("start", stack.start), *keyed(stack.items), ("end", stack.end)]


def _marked(items: Sequence[Any], keys: Iterator[tuple[str, Any]], others: Others) -> tuple[Any, ...]:
    marked_items: list[Any] = []
    for item in items:
        key, _ = next(keys)
        theirs = [other.get(key) for other in others]
        if isinstance(item, Box):
            marked_items.append(_marked_box(item, key, others))
        elif isinstance(item, Residual):
            differs = any(not isinstance(other, Residual) for other in theirs)
            marked_items.append(Residual(_marked(item.items, keys, others), differs))
        else:
            frames = [(other.count, other.label) if isinstance(other, Frame) else None for other in theirs]
            differs = any(other != (item.count, item.label) for other in frames)
            within = others if any(frames) else _as_main(others, key)
            items = _marked(item.items, keys, within)
            marked_items.append(dataclasses.replace(item, items=items, differs=differs))
    return tuple(marked_items)


def _as_main(others: Others, key: str) -> Others:
    """The items of each main frame again under `key`, a frame that the others lack, to compare its layers with theirs."""
    main = f"{key.rpartition('frame')[0]}{MAIN}/"
    moved = (
        {f"{key}/{name.removeprefix(main)}": item for name, item in other.items() if name.startswith(main)}
        for other in others
    )
    return [{**other, **more} for other, more in zip(others, moved, strict=True)]


def _marked_box(box: Box, key: str, others: Others) -> Box:
    theirs: list[Any] = [other.get(key) for other in others]
    if not all(isinstance(other, Box) for other in theirs):
        return dataclasses.replace(box, differs=True)
    differs = any(other.title != box.title for other in theirs)
    shared = set.intersection(*({(note.name, note.text) for note in other.notes} for other in theirs))
    notes = tuple(
        dataclasses.replace(note, differs=(note.name, note.text) not in shared) for note in box.notes
    )
    rows = box.rows  # of a box that differs as a whole, not every part is marked
    if not differs:
        rows = tuple(tuple(_marked_cell(cell, theirs) for cell in row) for row in rows)
    return dataclasses.replace(box, differs=differs, notes=notes, rows=rows)


def _marked_cell(cell: Cell, theirs: Sequence[Any]) -> Cell:
    named = any(character.isalnum() for character in cell.title)  # and no operator
    shared = all(any(cell.title == part.title for row in other.rows for part in row) for other in theirs)
    return dataclasses.replace(cell, differs=named and not shared)
