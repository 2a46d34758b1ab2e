"""Marks the differences among several diagrams. Imports no mlx."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.diagram.arrange import keyed, paired_roles
from zoo.describe.diagram.model import Box, Cell, Diagram, Frame, LayerStack, Note, Residual

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
    by_role = paired_roles(diagrams)
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
    found: list[Any] = []
    for item in items:
        key, _ = next(keys)
        theirs = [other.get(key) for other in others]
        if isinstance(item, Box):
            found.append(_marked_box(item, key, others))
        elif isinstance(item, Residual):
            differs = any(not isinstance(other, Residual) for other in theirs)
            found.append(Residual(_marked(item.items, keys, others), differs))
        else:
            frames = [(other.count, other.label) if isinstance(other, Frame) else None for other in theirs]
            differs = any(other != (item.count, item.label) for other in frames)
            within = others if any(frames) else _as_main(others, key)
            items = _marked(item.items, keys, within)
            found.append(dataclasses.replace(item, items=items, differs=differs))
    return tuple(found)


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
    notes = tuple(dataclasses.replace(note, differs=not _in_all(note, theirs)) for note in box.notes)
    rows = box.rows  # of a box that differs as a whole, not every part is marked
    if not differs:
        rows = tuple(tuple(_marked_cell(cell, theirs) for cell in row) for row in rows)
    return dataclasses.replace(box, differs=differs, notes=notes, rows=rows)


def _in_all(note: Note, theirs: Sequence[Any]) -> bool:
    return all(any((n.name, n.text) == (note.name, note.text) for n in other.notes) for other in theirs)


def _marked_cell(cell: Cell, theirs: Sequence[Any]) -> Cell:
    def has(other: Box) -> bool:
        return any(cell.title == part.title for row in other.rows for part in row)

    named = any(character.isalnum() for character in cell.title)  # and no operator
    return dataclasses.replace(cell, differs=named and not all(map(has, theirs)))
