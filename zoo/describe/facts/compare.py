"""Aligns the facts of several sheets in rows. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zoo.describe.facts.fact import ABSENT, Fact, Sheet
from zoo.describe.language import message
from zoo.frozen import Frozen, frozen

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
    """The rows of any columns of facts, such as those of `zoo.describe.facts.fields.fields_of`."""
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
