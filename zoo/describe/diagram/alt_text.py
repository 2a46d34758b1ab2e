"""A diagram in words, for those who cannot see it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zoo.describe.diagram.model import Box, Diagram, Frame
from zoo.describe.language import in_language, joined, message


def title_of(diagrams: Sequence[Diagram]) -> str:
    """What a picture of some diagrams shows, in their language."""
    text = message("Block diagram of {names}", names=joined(", ", (diagram.name for diagram in diagrams)))
    return in_language(text, diagrams[0].language) if diagrams else text


def described(diagram: Diagram) -> str:
    """The boxes of a diagram from bottom to top, with their facts and what repeats, in the diagram's language."""
    stacks = []
    for stack in diagram.stacks:
        items = joined("; ", _items([stack.start, *stack.items, stack.end]))
        stacks.append(message("{title}: {items}", title=stack.title, items=items) if stack.title else items)
    about = _with_notes(diagram.name, diagram.summary)
    text = message("{diagram}, from bottom to top. {stacks}.", diagram=about, stacks=joined(". ", stacks))
    return in_language(text, diagram.language)


def _items(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Box):
            text = message("{box} over the encoder's output", box=item.title) if item.memory else item.title
            text = _with_notes(text, joined(", ", (note.text for note in item.notes)))
            yield message("{box}, differs", box=text) if item.differs else text
        elif isinstance(item, Frame):
            label = ", {label}" if item.label else ""
            template = "{count} layers" + label + ", each: {inner}; end of the layer"
            yield message(
                template, count=item.count, label=item.label, inner=joined("; ", _items(item.items))
            )
        else:
            yield message("residual sum around: {inner}", inner=joined(", ", _items(item.items)))


def _with_notes(text: str, notes: str) -> str:
    return message("{block} ({explanation})", block=text, explanation=notes) if notes else text
