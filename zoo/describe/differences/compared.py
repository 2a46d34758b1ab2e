"""A recipe's stack as it is compared with others: its parts by name, each form once, and the names of layers. Imports no mlx."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from zoo.describe.facts.counts import has_idle_experts
from zoo.describe.facts.structure import layers_without_positions, positions
from zoo.describe.language import message
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model, Spec


@frozen()
class Row(Frozen):
    """One part of a stack's layers, such as their mixers.

    `each` is the part of every layer, None where a layer has none. `forms` are the different ones, `common` is the most
    frequent.
    """

    each: tuple[Spec | None, ...]
    forms: tuple[Spec | None, ...]
    common: Spec | None


class Compared:
    """What is asked of a stack when it is compared with others, worked out once."""

    def __init__(self, stack: Model) -> None:
        self.stack = stack

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The parts of the layers by name; norms are left out."""
        layers = self.stack.layers
        rows: dict[str, list[Spec | None]] = {}
        spelled: dict[tuple[int, int], Spec] = {}  # equal layers mostly are one object
        one_of: dict[Spec, Spec] = {}
        for index, layer in enumerate(layers):
            for name, part in layer.children():
                if part.kind != "norm":
                    row = rows.setdefault(name, [None] * len(layers))
                    key = (id(part), layer.width(name, self.stack.dim))
                    if key not in spelled:
                        full = _spelled_out(part, key[1])
                        spelled[key] = one_of.setdefault(full, full)
                    row[index] = spelled[key]
        return {name: _row(each) for name, each in rows.items()}

    @cached_property
    def positions(self) -> str:
        """The positions in words; "" where no part has positions."""
        return positions(self.stack) or ""

    @cached_property
    def unrotated(self) -> str:
        """The layers without positions in words; "" where there are none."""
        layers = layers_without_positions(self.stack)
        return where(layers, len(self.stack.layers)) if layers else ""

    @cached_property
    def norms(self) -> list[Spec]:
        """A norm of each title, that of the layers first."""
        parts = [part for layer in self.stack.layers for _, part in layer.children()]
        norms: dict[str, Spec] = {}
        for part in (*parts, getattr(self.stack, "norm", None)):
            if part is not None and part.kind == "norm":
                norms.setdefault(part.title, part)
        return list(norms.values())

    @cached_property
    def counts(self) -> tuple[int, int] | None:
        """The parameters that a token uses, and all; None where it uses all that it is computed with."""
        recipe = self.stack
        if not has_idle_experts(recipe):
            return None
        return int(recipe.active_parameters(recipe.dim)), int(recipe.parameters(recipe.dim))

    @cached_property
    def layer(self) -> Spec:
        """The most frequent layer."""
        return Counter(self.stack.layers).most_common(1)[0][0]


class _Same:
    """A cache key that compares objects by identity, not by value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def compared(stack: Model) -> Compared:
    """The cached `Compared` of a stack. A page compares each stack with many others."""
    return _compared(_Same(stack))


@lru_cache(maxsize=512)
def _compared(key: _Same) -> Compared:
    return Compared(key.value)


def _row(each: Sequence[Spec | None]) -> Row:
    counts = Counter(map(id, each))  # equal parts are one object
    forms = {id(part): part for part in each}
    return Row(tuple(each), tuple(forms.values()), forms[counts.most_common(1)[0][0]])


def _spelled_out(part: Spec, dim: int) -> Spec:
    """Attention with its defaults filled in: key/value heads, head width; None for the usual scale."""
    fields = vars(part)
    if not {"heads", "kv_heads", "head_dim", "scale"} <= fields.keys():
        return part
    width = fields["head_dim"] or dim // fields["heads"]
    scale = fields["scale"]
    usual = scale is None or math.isclose(scale, width**-0.5)
    kv_heads = fields["kv_heads"] or fields["heads"]
    return part.change(kv_heads=kv_heads, head_dim=width, scale=None if usual else scale)


def where(places: Sequence[int], layers: int) -> str:
    """A text for some of the layers, by their indices: "every other layer"."""
    if len(places) == layers:
        return "each layer"
    if len(places) == 1:
        return message("layer {n} of {m}", n=places[0] + 1, m=layers)
    if list(places) == list(range(len(places))):
        return message("the first {n} layers", n=len(places))
    if list(places) == list(range(layers - len(places), layers)):
        return message("the last {n} of {m} layers", n=len(places), m=layers)
    steps = {b - a for a, b in itertools.pairwise(places)}
    if len(steps) == 1 and places[0] < (step := steps.pop()):
        return "every other layer" if step == 2 else message("one layer in {n}", n=step)
    return message("{n} of {m} layers", n=len(places), m=layers)
