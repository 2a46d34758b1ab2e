"""Aligns facts in rows: those of several sheets, and every field of several recipes. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zoo.describe.facts.counts import stacks
from zoo.describe.facts.fact import ABSENT, Fact, Sheet, runs_text
from zoo.describe.language import message
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model, Spec


def fields_of(recipe: Model) -> tuple[Fact, ...]:
    """Each field as a fact: "decoder.layer.mixer.heads" with the role "decoder". Equal fields of all layers are one fact.

    A field's value is its own, or, where layers differ, a text with how many layers have which value. A field that holds a spec
    has that spec's name.
    """
    roles = stacks(recipe)
    found = [fact for role, stack in roles.items() for fact in _stack(role, stack)]
    if list(roles.values()) != [recipe]:
        rest = [(name, value) for name, value in recipe.shown_fields() if not _specs_of(value)]
        found = [Fact(name, name, _scalar(value)) for name, value in rest] + found
    return tuple(found)


def _specs_of(value: object) -> tuple[Spec, ...]:
    """The specs that a field holds."""
    values = value if isinstance(value, tuple) else (value,)
    return values if values and isinstance(values[0], Spec) else ()


def _stack(role: str, stack: Model) -> Iterator[Fact]:
    """The fields of one stack."""
    layers = len(stack.layers)
    merged: dict[str, dict[int, list[Any]]] = {}
    for path, value, layer in _fields(stack, "", 0):
        merged.setdefault(path, {}).setdefault(layer, []).append(value)
    for path, by_layer in merged.items():
        values = [value for _, items in sorted(by_layer.items()) for value in items]
        if f"{path}.".startswith("layer.") and len(by_layer) < layers:
            values = [item for index in range(layers) for item in by_layer.get(index, [None])]
        same = all(value == values[0] and type(value) is type(values[0]) for value in values)
        value = _scalar(values[0]) if same else runs_text([Fact("", "", _scalar(v)).text for v in values])
        yield Fact(f"{role}.{path}", path, value, role=role)


def _fields(spec: Spec, path: str, layer: int) -> Iterator[tuple[str, Any, int]]:
    """Each field below a spec as (path without numbers, value, number of the layer)."""
    for name, value in spec.shown_fields():
        below, specs = f"{path}.{name}" if path else name, _specs_of(value)
        if not specs:
            yield below, value, layer
        elif isinstance(value, tuple):
            yield below, len(value), layer
            below = below.removesuffix("s")
        for index, part in enumerate(specs):
            inner = layer if path else index
            yield below, part.name, inner
            yield from _fields(part, below, inner)


def _scalar(value: object) -> Any:
    """The value as a fact holds it."""
    return value if value is None or isinstance(value, bool | int | float | str | tuple) else str(value)


SEPARATE = ("layers",)  # a number of layers is of one stack, even where both have as many


@frozen()
class FactRow(Frozen):
    """One fact of several models: `values` and `texts` in the order of the sheets, None and "–" where one has no such fact."""

    name: str
    label: str
    values: tuple[Any, ...]
    texts: tuple[str, ...]
    unit: str = ""
    detail: bool = False

    @property
    def differs(self) -> bool:
        """Whether the values are not all the same."""
        return any(value != self.values[0] for value in self.values[1:])

    def to_json(self) -> dict[str, Any]:
        """The row as JSON: values in the order of the models."""
        values = [list(value) if isinstance(value, tuple) else value for value in self.values]
        row = {"name": self.name, "label": self.label, "values": values, "differs": self.differs}
        return row | ({"unit": self.unit} if self.unit else {})

    @property
    def empty(self) -> bool:
        """Whether no model has a value."""
        return set(self.texts) <= {ABSENT}


def compare(sheets: Sequence[Sheet]) -> list[FactRow]:
    """The rows of several sheets, in the order of their facts.

    Facts of a decoder stand beside those of a decoder, of an encoder beside those of an encoder. Where no model has both,
    the one stack of each stands beside that of the others. A fact in which each model's encoder and decoder agree is one row.
    Raises nothing of its own.

    >>> from zoo.describe import compare
    >>> rows = compare([zoo.load("llama").facts, zoo.load("gpt2").facts])
    >>> next(row.texts for row in rows if row.name == "norm")
    ('RMSNorm', 'LayerNorm')
    """
    return aligned([sheet.facts for sheet in sheets])


def aligned(columns: Sequence[Iterable[Fact]]) -> list[FactRow]:
    """The rows of any columns of facts, such as those of `zoo.describe.facts.compare.fields_of`."""
    lists = [list(column) for column in columns]
    strict = any(len({fact.role for fact in column if fact.role}) > 1 for column in lists)
    merged = _merged(lists) if strict else {fact.key for column in lists for fact in column}
    keyed: list[dict[str, Fact]] = []
    for column in lists:
        rows: dict[str, Fact] = {}
        for fact in column:
            rows.setdefault(fact.key if fact.key in merged else fact.name, fact)
        keyed.append(rows)
    found = []
    for name in _order(keyed):
        facts = [rows.get(name) for rows in keyed]
        first = next(fact for fact in facts if fact is not None)
        label = first.label
        if first.role and name == first.name and strict:
            label = message(f"{first.role} {{label}}", label=label)
        values = tuple(None if fact is None else fact.value for fact in facts)
        texts = tuple(ABSENT if fact is None else fact.text for fact in facts)
        detail = all(fact.detail for fact in facts if fact is not None)
        found.append(FactRow(name, label, values, texts, first.unit, detail))
    return found


def _merged(columns: Sequence[Sequence[Fact]]) -> set[str]:
    """The keys of which every column's encoder and decoder, where it has both, have the same value."""
    keys = {fact.key for column in columns for fact in column}
    apart = set(SEPARATE)
    for column in columns:
        roles = {fact.role for fact in column if fact.role}
        for key in keys:
            values = [fact.value for fact in column if fact.key == key and fact.role]
            if len(roles) > 1 and values and (len(values) < 2 or values[0] != values[1]):
                apart.add(key)
    return keys - apart


def _order(columns: Sequence[dict[str, Fact]]) -> list[str]:
    """The names of all columns, merged: a later column's own name follows its neighbour."""
    names: list[str] = []
    for column in columns:
        index = 0
        for name in column:
            if name in names:
                index = names.index(name) + 1
            else:
                names.insert(index, name)
                index += 1
    return names
