"""What a diagram shows, without any geometry, in any language. Imports no mlx.

A diagram has stacks (a decoder, an encoder), a stack has items from bottom (tokens) to top (logits): boxes, residual sums
around some of them, and frames around layers that repeat. `path` is the path of the field in the recipe that an item is
drawn from, with `*` for the number of a layer: `layers.*.mixer`. `differs` marks what is not the same in the diagrams that
are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from zoo.describe.language import in_language
from zoo.frozen import Frozen, frozen

ENDS = ("input", "output", "memory")  # roles of boxes without a frame: what enters and leaves a stack
MARK = "≠ "  # before what differs


@frozen()
class Note(Frozen):
    """A short fact beside a box ("32 heads"). `key` identifies it ("heads"), so that two can be compared."""

    text: str
    key: str = ""
    differs: bool = False

    @property
    def name(self) -> str:
        """The key, else the text itself."""
        return self.key or self.text


@frozen()
class Cell(Frozen):
    """A part inside a box: a projection, a norm, an operator. An empty title leaves its place free."""

    title: str
    path: str = ""
    differs: bool = False


@frozen()
class Box(Frozen):
    """A block: its title, its facts, and rows of parts inside it, from bottom to top.

    `role` is what it is for ("attention", "feedforward", "norm", "embedding", "head"), whatever it is called; items of
    one role stand in one line. `memory`: it also reads the encoder's output. `block` is the spec that it stands for, as
    the registry calls it: "mixer/attention".
    """

    role: str
    title: str
    path: str = ""
    notes: tuple[Note, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    memory: bool = False
    differs: bool = False
    block: str = ""

    def with_notes(self, *texts: str | Note) -> Box:
        """A copy with more facts."""
        return dataclasses.replace(self, notes=(*self.notes, *map(as_note, texts)))


@frozen()
class Residual(Frozen):
    """x + f(x): the items of f, and an arrow around them to a sum."""

    items: tuple[Any, ...]
    differs: bool = False


@frozen()
class Frame(Frozen):
    """Layers that repeat: how many there are, and which, where they are not all ("even layers").

    `block` is the first one's spec, as the registry calls it.
    """

    items: tuple[Any, ...]
    count: int
    path: str = ""
    label: str = ""
    differs: bool = False
    block: str = ""


@frozen()
class LayerStack(Frozen):
    """One tower of items. `role` is "decoder" or "encoder"; `start` and `end` are what enters and what leaves it."""

    role: str
    title: str
    items: tuple[Any, ...]
    start: Box
    end: Box
    differs: bool = False


@frozen()
class Diagram(Frozen):
    """A model: its name, a line about it, and its stacks, those that others read from first; `language` is that of its texts."""

    name: str
    summary: str
    stacks: tuple[LayerStack, ...]
    language: str = "en"


def as_note(note: str | Note) -> Note:
    """A text as a note."""
    return note if isinstance(note, Note) else Note(note)


def boxes(items: Iterable[Any]) -> Iterator[Box]:
    """Every box of some items, from bottom to top."""
    for item in items:
        if isinstance(item, Box):
            yield item
        else:
            yield from boxes(item.items)


def without_notes(item: Any) -> Any:
    """A copy of a diagram, or of a part of it, in which no box has notes."""
    if isinstance(item, tuple):
        return tuple(map(without_notes, item))
    if isinstance(item, Box):
        return dataclasses.replace(item, notes=())
    parts = {name: getattr(item, name, None) for name in ("stacks", "items", "start", "end")}
    return dataclasses.replace(item, **{name: without_notes(part) for name, part in parts.items() if part})


TEXTS = ("title", "text", "label", "summary")  # the fields that are translated


def diagram_in(diagram: Diagram, language: str) -> Diagram:
    """The same diagram with its titles, notes and parts in a language. Its name stays; lay it out afterwards.

    Call `marked` first: a note without a key of its own keeps its English text as the key. ZooError for an unknown
    language.
    """
    translated: Diagram = _translated(diagram, language)
    return dataclasses.replace(translated, language=language)


def _translated(item: object, language: str) -> Any:
    if isinstance(item, tuple):
        return tuple(_translated(one, language) for one in item)
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        return item
    values = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    changed = {
        name: in_language(value, language) if name in TEXTS else _translated(value, language)
        for name, value in values.items()
    }
    if isinstance(item, Note):
        changed["key"] = item.name
    return dataclasses.replace(item, **changed)
