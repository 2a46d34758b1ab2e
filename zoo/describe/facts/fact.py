"""Facts: named values with units, in sheets, and in rows side by side. Imports no mlx.

`fields_of` gives every field of a recipe as a fact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from zoo.describe.facts.counts import stacks
from zoo.describe.html_table import html_table
from zoo.describe.language import SIZES, Message, joined, message
from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model, Spec

ABSENT = "–"  # where there is no value
MEASURED_UNITS = ("tokens/s", "s")
Scalar = int | float | str | bool | None
Value = Scalar | tuple[Scalar, ...]


@frozen()
class Fact(Frozen):
    """A named value that describes a model.

    `name` is its key ("parameters.total"), `label` what a person reads, `unit` what a number counts ("bytes"). A tuple
    is a value a layer. `role` is the stack that it is about: "decoder", "encoder", or "" for the whole model. `detail`: it is
    left out of the short sheet. `words` are shown in the place of the value, where that alone would mislead.

    >>> from zoo.describe import Fact
    >>> Fact("weights.chosen", "weights, bfloat16", 16_060_522_496, "bytes").text
    '16.1 GB'
    """

    name: str
    label: str
    value: Value
    unit: str = ""
    note: str = ""
    role: str = ""
    detail: bool = False
    words: str = ""

    @property
    def key(self) -> str:
        """The name without the role: what is compared with another model's."""
        return self.name.removeprefix(f"{self.role}.") if self.role else self.name

    @property
    def text(self) -> str:
        """The value as a person reads it: "124 M", "1.24 GB", "131,072"."""
        return self.words or text_of(self.value, self.unit)

    def to_json(self) -> dict[str, Any]:
        """The value as JSON has it, with its label, and its unit, note and role where it has one."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        more = {"unit": self.unit, "note": self.note, "role": self.role}
        return {"label": self.label, "value": value} | {key: text for key, text in more.items() if text}


@frozen()
class Sheet(Frozen):
    """The facts of one model, in the order of the sheet.

    `recipe` is what they are of. `numbers` are those from which cache and weights can be computed anew for another context
    or format (`zoo.describe.facts.sheet.numbers_of` documents them). `sheet[name]` raises ZooError for a name that it does not have.

    >>> sheet = zoo.load("llama").facts
    >>> sheet["parameters.total"].text
    '1.05 M'
    >>> sheet.value("decoder.heads"), "decoder.experts" in sheet
    (4, False)
    """

    title: str
    facts: tuple[Fact, ...]
    recipe: Model
    numbers: dict[str, Any]

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __contains__(self, name: object) -> bool:
        return any(fact.name == name for fact in self.facts)

    def __getitem__(self, name: str) -> Fact:
        """The fact of that name; ZooError, with those there are, for none."""
        fact = self.get(name)
        if fact is None:
            raise ZooError(f"there is no fact {name!r}; there are {', '.join(f.name for f in self.facts)}")
        return fact

    def get(self, name: str) -> Fact | None:
        """The fact of that name, None for none."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def value(self, name: str) -> Any:
        """The value of the fact of that name, None where it is not known."""
        fact = self.get(name)
        return None if fact is None else fact.value

    def _repr_html_(self) -> str:
        """The facts as a table, as a notebook shows it."""
        return html_table(((fact.label, fact.text) for fact in self), ("", self.title))

    def to_json(self) -> dict[str, Any]:
        """All facts by name, and the numbers behind those of cache and weights."""
        return {
            "title": self.title,
            "facts": {fact.name: fact.to_json() for fact in self.facts},
            "numbers": self.numbers,
        }


def text_of(value: Value, unit: str = "") -> str:
    """A value as a person reads it."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return runs_text([text_of(item, unit) for item in value])
    if isinstance(value, str):
        return value
    if unit == "bytes":
        return f"{amount(value)}B"
    if unit == "parameters":
        return parameter_count(value)
    if unit in ("FLOPs", "numbers"):
        return amount(value).rstrip()
    if unit in MEASURED_UNITS:
        return message(f"{{n}} {unit}", n=f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def factor(value: float) -> tuple[str, str]:
    """The sign, "×" or "/", and the text of a factor in its simplest form: 0.125 is / 8, 1/√512 is / √512."""
    sign, size = ("/", 1 / value) if 0 < value < 1 else ("×", value)
    for root, number in (("", size), ("√", size * size)):
        if 1 <= number < 1e6 and math.isclose(number, round(number), rel_tol=1e-8):
            return sign, f"{root}{round(number):,}"
    return "×", f"{value:.4g}"


def factor_words(value: float) -> Message:
    """The factor in a sentence: "multiplied by 12", "divided by √512"."""
    sign, text = factor(value)
    return message(f"{'divided' if sign == '/' else 'multiplied'} by {{n}}", n=text)


def amount(number: float) -> str:
    """A count in three digits and a unit: 1.24 G."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            return f"{_three(number / size)} {unit}"
    return f"{number:.3g} " if isinstance(number, float) and not number.is_integer() else f"{int(number)} "


def parameter_count(number: float) -> str:
    """Parameters as the field counts them, billions with a B: 8.03 B."""
    return amount(number).rstrip().replace("G", "B")


def billions(number: float) -> Message:
    """A count as a sentence has it: "46.7 billion"."""
    for word, size in SIZES.items():
        if number >= size * 0.9995:
            return message(f"{{n}} {word}", n=_three(number / size))
    return message("{n}", n=f"{int(number):,}")


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 999.5 else f"{number:.3g}"


def runs_text(items: Iterable[str]) -> str:
    """The value when all are equal; else the number of each, in their order when that is short."""
    items = list(items)
    counts = Counter(items)
    if len(counts) == 1:
        return items[0]
    runs = [(item, len(list(equal))) for item, equal in groupby(items)]
    if len(counts) == 2 and ABSENT in counts:
        value = next(item for item in counts if item != ABSENT)
        template = "{value} in {n} of {m} layers" + ("" if len(runs) <= 3 else ", in turn")
        return message(template, value=value, n=counts[value], m=len(items))
    if len(runs) <= 3:
        return _with_counts(runs)
    return message("{values}, in turn", values=_with_counts(counts.items()))


def _with_counts(counts: Iterable[tuple[str, int]]) -> Message:
    named = ((message("none") if item == ABSENT else item, count) for item, count in counts)
    return joined(", ", (message("{value} ×{n}", value=item, n=count) for item, count in named))


def fields_of(recipe: Model) -> tuple[Fact, ...]:
    """Each field as a fact: "decoder.layer.mixer.heads" with the role "decoder". Equal fields of all layers are one fact.

    A field's value is its own, or, where layers differ, a text with how many layers have which value. A field that holds a spec
    has that spec's name.
    """
    roles = stacks(recipe)
    facts = [fact for role, stack in roles.items() for fact in _stack(role, stack)]
    if list(roles.values()) != [recipe]:
        rest = [(name, value) for name, value in recipe.shown_fields() if not _specs_of(value)]
        facts = [Fact(name, name, _scalar(value)) for name, value in rest] + facts
    return tuple(facts)


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


class Comparison(list[FactRow]):
    """The rows of several sheets, whose `titles` are the heads of their columns."""

    titles: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """The rows as a table, as a notebook shows it; ≠ marks those whose values differ."""
        rows = ((f"{row.label}{' ≠' if row.differs else ''}", *row.texts) for row in self)
        return html_table(rows, ("", *self.titles))


def compare(sheets: Sequence[Sheet]) -> Comparison:
    """The rows of several sheets, in the order of their facts.

    Facts of a decoder stand beside those of a decoder, of an encoder beside those of an encoder. Where no model has both,
    the one stack of each stands beside that of the others. A fact in which each model's encoder and decoder agree is one row.
    Raises nothing of its own.

    >>> from zoo.describe import compare
    >>> rows = compare([zoo.load("llama").facts, zoo.load("gpt2").facts])
    >>> next(row.texts for row in rows if row.name == "norm")
    ('RMSNorm', 'LayerNorm')
    """
    comparison = Comparison(aligned([sheet.facts for sheet in sheets]))
    comparison.titles = tuple(sheet.title for sheet in sheets)
    return comparison


def aligned(columns: Sequence[Iterable[Fact]]) -> list[FactRow]:
    """The rows of any columns of facts, such as those of `zoo.describe.facts.fact.fields_of`."""
    lists = [list(column) for column in columns]
    strict = any(len({fact.role for fact in column if fact.role}) > 1 for column in lists)
    merged = _merged(lists) if strict else {fact.key for column in lists for fact in column}
    keyed: list[dict[str, Fact]] = []
    for column in lists:
        rows: dict[str, Fact] = {}
        for fact in column:
            rows.setdefault(fact.key if fact.key in merged else fact.name, fact)
        keyed.append(rows)
    fact_rows = []
    for name in _order(keyed):
        facts = [rows.get(name) for rows in keyed]
        first = next(fact for fact in facts if fact is not None)
        label = first.label
        if first.role and name == first.name and strict:
            label = message(f"{first.role} {{label}}", label=label)
        values = tuple(None if fact is None else fact.value for fact in facts)
        texts = tuple(ABSENT if fact is None else fact.text for fact in facts)
        detail = all(fact.detail for fact in facts if fact is not None)
        fact_rows.append(FactRow(name, label, values, texts, first.unit, detail))
    return fact_rows


def _merged(columns: Sequence[Sequence[Fact]]) -> set[str]:
    """The keys whose value is the same in encoder and decoder, in every column that has both."""
    keys = {fact.key for column in columns for fact in column}
    apart = {"layers"}  # a number of layers is of one stack, even where both have as many
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
