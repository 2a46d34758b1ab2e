"""A diagram with its texts in another language. Imports no mlx."""

from __future__ import annotations

import dataclasses
from typing import Any

from zoo.describe.diagram.model import Box, Cell, Diagram, Frame, Note, Stack
from zoo.describe.language import in_language


def diagram_in(diagram: Diagram, language: str) -> Diagram:
    """The same diagram with its titles, notes and parts in a language, to be laid out after that; its name stays.

    Give it what `marked` has marked: a note without a key of its own keeps its text as the key. ZooError for a language
    that there is not.
    """
    stacks = tuple(_stack(stack, language) for stack in diagram.stacks)
    summary = in_language(diagram.summary, language)
    return dataclasses.replace(diagram, summary=summary, stacks=stacks, language=language)


def _stack(stack: Stack, language: str) -> Stack:
    start, end, *items = (_item(item, language) for item in (stack.start, stack.end, *stack.items))
    title = in_language(stack.title, language)
    return dataclasses.replace(stack, title=title, start=start, end=end, items=tuple(items))


def _item(item: Any, language: str) -> Any:
    if isinstance(item, Box):
        notes = tuple(_note(note, language) for note in item.notes)
        rows = tuple(tuple(_cell(cell, language) for cell in row) for row in item.rows)
        return dataclasses.replace(item, title=in_language(item.title, language), notes=notes, rows=rows)
    items = tuple(_item(inner, language) for inner in item.items)
    if isinstance(item, Frame):
        return dataclasses.replace(item, items=items, label=in_language(item.label, language))
    return dataclasses.replace(item, items=items)


def _note(note: Note, language: str) -> Note:
    return dataclasses.replace(note, text=in_language(note.text, language), key=note.name)


def _cell(cell: Cell, language: str) -> Cell:
    return dataclasses.replace(cell, title=in_language(cell.title, language))
