"""A diagram in words, for those who cannot see it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zoo.insight.diagram.model import Box, Diagram, Frame


def described(diagram: Diagram) -> str:
    """The boxes of a diagram from bottom to top, with their facts and what repeats."""
    parts = []
    for stack in diagram.stacks:
        items = [stack.start, *stack.items, stack.end]
        title = f"{stack.title}: " if stack.title else ""
        parts.append(title + "; ".join(_said(items)))
    about = f" ({diagram.summary})" if diagram.summary else ""
    return f"{diagram.name}{about}, from bottom to top. " + ". ".join(parts) + "."


def _said(items: Sequence[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Box):
            notes = ", ".join(note.text for note in item.notes)
            reads = " over the encoder's output" if item.memory else ""
            yield f"{item.title}{reads}{f' ({notes})' if notes else ''}{', differs' if item.differs else ''}"
        elif isinstance(item, Frame):
            label = f", {item.label}" if item.label else ""
            yield f"{item.count} layers{label}, each: {'; '.join(_said(item.items))}; end of the layer"
        else:
            yield f"residual sum around: {', '.join(_said(item.items))}"
