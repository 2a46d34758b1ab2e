"""Draws a recipe: each spec by its plugin's function, or by its fields where there is none. Imports no mlx.

Also formats numbers, activations and ranges of layers for drawings.

Nothing here knows a family. Only a layer's own drawing knows how it joins its parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from zoo.describe.diagram.model import Box, Cell, Diagram, Frame, LayerStack, Note, Residual, as_note, boxes
from zoo.describe.facts.counts import has_idle_experts
from zoo.describe.facts.fact import billions
from zoo.describe.language import joined, message
from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen
from zoo.host.registry import Registry
from zoo.recipe import Model, Spec
from zoo.recipe.parts import ACTIVATION_TITLES

LISTED = 6  # layers whose numbers are written one by one
ROLES = {"mixer": "attention", "layer": "layer", "model": "model"}


@frozen()
class Scene(Frozen):
    """What the parts of a stack share: the causality, and a position bias that all layers use."""

    registry: Registry
    causality: str = "causal"
    relative: Spec | None = None


@frozen()
class DrawnSpec(Frozen):
    """A spec that is drawn, with its path in the recipe, its width, and what its stack shares."""

    spec: Any
    path: str
    dim: int
    scene: Scene

    def below(self, field: str) -> str:
        """The path of a field or a parameter of this spec."""
        return f"{self.path}.{field}" if self.path else field

    def part(self, field: str, spec: Spec | None = None) -> tuple[Any, ...]:
        """The items of the spec in a field; nothing where it is None."""
        spec = getattr(self.spec, field) if spec is None else spec
        if spec is None:
            return ()
        return draw(DrawnSpec(spec, self.below(field), self.spec.width(field, self.dim), self.scene))

    def title(self, field: str) -> str:
        """The title of the first box of the spec in a field, or nothing where it is None."""
        return next((box.title for box in boxes(self.part(field))), "")

    def box(self, title: str, *notes: str | Note, role: str = "", rows: Iterable[Any] = ()) -> Box:
        """A box of this spec. `rows` are those of its parts, bottom to top: each a title, or a (title, field)."""

        def cell(part: str | tuple[str, str]) -> Cell:
            title, field = (part, "") if isinstance(part, str) else part
            return Cell(title, self.below(field) if field else self.path)

        cells = tuple(tuple(cell(part) for part in (row if isinstance(row, list) else [row])) for row in rows)
        role = role or ROLES.get(self.spec.kind, self.spec.kind)
        return Box(role, title, self.path, tuple(map(as_note, notes)), cells, block=self.spec.block())


def diagram_of(recipe: Model, name: str, registry: Registry, summary: str = "") -> Diagram:
    """The diagram of a recipe. PluginError names a drawing that does not give what it should.

    >>> from zoo.host.registry import default_registry
    >>> from zoo.describe.diagram import diagram_of
    >>> diagram = diagram_of(zoo.load("llama").recipe, "llama", default_registry())
    >>> diagram.summary
    '1.05 million parameters'
    """
    if not summary:
        counts = [message("{count} parameters", count=billions(recipe.parameters(recipe.dim)))]
        if has_idle_experts(recipe):
            active = billions(recipe.active_parameters(recipe.dim))
            counts.append(message("{count} used by a token", count=active))
        summary = joined(", ", counts)
    items = draw(DrawnSpec(recipe, "", recipe.dim, Scene(registry)))
    if not all(isinstance(item, LayerStack) for item in items):
        start, end = Box("input", "Tokens"), Box("output", "Logits")
        items = (LayerStack("decoder", "", items, start, end),)
    return Diagram(name, summary, items)


def draw(subject: DrawnSpec) -> tuple[Any, ...]:
    """The items of a spec, from bottom to top."""
    drawing = subject.scene.registry.drawing(type(subject.spec))
    own = drawing is not None and drawing.spec is type(subject.spec)
    # A layer of a subclass may join its parts in another way than its base does.
    if drawing is None or (subject.spec.kind == "layer" and not own):
        return (generic(subject),)
    try:
        drawn = drawing.load()(subject)
        items = (drawn,) if isinstance(drawn, Box | Residual | Frame | LayerStack) else tuple(drawn)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PluginError(f"the drawing of {subject.spec.block()}, {drawing.target}: {error!r}") from error
    for item in items:
        if not isinstance(item, Box | Residual | Frame | LayerStack):
            raise PluginError(f"the drawing of {subject.spec.block()}, {drawing.target}: gave {item!r}")
    if own or not items or isinstance(items[0], LayerStack):
        return items
    return _with_own_fields(items, subject, drawing.spec)


def _with_own_fields(items: tuple[Any, ...], subject: DrawnSpec, base: type[Spec]) -> tuple[Any, ...]:
    """The items of a base's drawing, with notes of the block's own name and of fields that the base lacks."""
    known = {field.name for field in dataclasses.fields(base)}
    own = [Note(subject.spec.name, "block")] if subject.spec.block() != base.block() else []
    own += [note for note in field_notes(subject.spec) if note.key not in known]
    for field, value in subject.spec.parts():
        if field not in known and isinstance(value, Spec):
            own.append(Note(f"{field.replace('_', ' ')} {subject.title(field) or spaced(value.name)}", field))
    if not own or not isinstance(items[0], Box):
        return items
    return (items[0].with_notes(*own), *items[1:])


def generic(subject: DrawnSpec) -> Box:
    """A box for a spec without a drawing: its name, its plain fields, and its parts inside."""
    spec = subject.spec
    rows: list[Any] = []
    notes: list[Note] = list(field_notes(spec))
    for field, value in spec.parts():
        parts = (value,) if isinstance(value, Spec) else value[:1]
        for part in parts:
            drawn = list(boxes(subject.part(field, part)))
            rows += [(box.title, field) for box in drawn[:1]]
            if spec.kind in ("layer", "model"):
                inner = [note for box in drawn if box.role != "norm" for note in box.notes]
                notes += [Note(note.text, f"{field}.{note.name}") for note in inner]
    return subject.box(spaced(spec.name), *notes, rows=rows)


def field_notes(spec: Spec) -> Iterable[Note]:
    """The plain fields of a spec, without those that are None or False."""
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        word = field.name.replace("_", " ")
        if value is True:
            yield Note(word, field.name)
        elif isinstance(value, int | float) and not isinstance(value, bool) and field.name != "eps":
            yield Note(f"{word} {number(value)}", field.name)
        elif isinstance(value, str) and value and len(value) <= 24:
            yield Note(f"{word} {value}", field.name)


def number(value: float) -> str:
    """A number with separators between thousands; a fraction in four digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.4g}"


def counted(count: int, noun: str) -> str:
    """ "1 head", "8 heads"."""
    return f"1 {noun}" if count == 1 else message(f"{{n}} {noun}s", n=number(count))


def note(key: str, template: str, **values: float) -> Note:
    """A fact with numbers: `note("heads", "{n} heads", n=8)`."""
    return Note(message(template, **{name: number(value) for name, value in values.items()}), key)


def activation(name: str) -> str:
    """An activation's name in texts."""
    return ACTIVATION_TITLES.get(name, name)


def spaced(name: str) -> str:
    """A spec's name as words: "selective-state-space" -> "Selective state space"."""
    words = name.replace("-", " ").replace("_", " ").strip() or "block"
    return words[:1].upper() + words[1:]


def which(indices: Sequence[int], total: int) -> str:
    """Which layers of `total`, counted from 0: "even layers", "first 3 layers", "every 4th layer from 3"."""
    count = len(indices)
    if count == total:
        return ""
    if told := _regular(indices, total):
        return told
    others = _regular(sorted(set(range(total)) - set(indices)), total)
    if others and count > total // 2:
        return message("all but {layers}", layers=others)
    if count <= LISTED:
        return message("layers {list}", list=", ".join(map(str, indices)))
    return message("{n} layers from {m} to {k}", n=count, m=indices[0], k=indices[-1])


def _regular(indices: Sequence[int], total: int) -> str:
    """Words for one layer, for neighbours, and for layers at equal distances; "" for others."""
    count, first, last = len(indices), indices[0], indices[-1]
    if count == 1:
        return message("layer {n}", n=first)
    if last - first == count - 1:
        if first == 0:
            return message("first {n} layers", n=count)
        if last == total - 1:
            return message("last {n} layers", n=count)
        return message("layers {n}–{m}", n=first, m=last)
    steps = {after - before for before, after in pairwise(indices)}
    if len(steps) > 1 or first >= (step := steps.pop()) or last + step < total:
        return ""
    if step == 2:
        return "odd layers" if first else "even layers"
    digit = step % 10 if step % 100 not in (11, 12, 13) else 0
    ending = {1: "st", 2: "nd", 3: "rd"}.get(digit, "th")
    return message(f"every {{n}}{ending} layer from {{m}}", n=step, m=first)
