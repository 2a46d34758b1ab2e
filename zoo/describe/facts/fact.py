"""Facts: named values with units, in sheets. Imports no mlx."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from zoo.describe.language import SIZES, Message, joined, message
from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model

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
        found = self.get(name)
        if found is None:
            raise ZooError(f"there is no fact {name!r}; there are {', '.join(f.name for f in self.facts)}")
        return found

    def get(self, name: str) -> Fact | None:
        """The fact of that name, None for none."""
        return next((fact for fact in self.facts if fact.name == name), None)

    def value(self, name: str) -> Any:
        """The value of the fact of that name, None where it is not known."""
        found = self.get(name)
        return None if found is None else found.value

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
    if unit in ("parameters", "FLOPs", "numbers"):
        return amount(value).rstrip()
    if unit in MEASURED_UNITS:
        return message(f"{{n}} {unit}", n=f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


def factor(value: float) -> tuple[str, str]:
    """What something is multiplied ("×") or divided ("/") by, as it is read most easily: 0.125 is / 8, 1/√512 is / √512."""
    sign, size = ("/", 1 / value) if 0 < value < 1 else ("×", value)
    for root, number in (("", size), ("√", size * size)):
        if 1 <= number < 1e6 and math.isclose(number, round(number), rel_tol=1e-8):
            return sign, f"{root}{round(number):,}"
    return "×", f"{value:.4g}"


def factor_words(value: float) -> Message:
    """The same in a sentence: "multiplied by 12", "divided by √512"."""
    sign, text = factor(value)
    return message(f"{'divided' if sign == '/' else 'multiplied'} by {{n}}", n=text)


def amount(number: float) -> str:
    """A count in three digits and a unit: 1.24 G."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            return f"{_three(number / size)} {unit}"
    return f"{number:.3g} " if isinstance(number, float) and not number.is_integer() else f"{int(number)} "


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
    return message("{values} in turn", values=_with_counts(counts.items()))


def _with_counts(found: Iterable[tuple[str, int]]) -> Message:
    return joined(", ", (message("{value} ×{n}", value=item, n=count) for item, count in found))
