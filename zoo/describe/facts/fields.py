"""Every field of a recipe, by the role of the stack that it is in, so that two recipes can be laid side by side.

Imports no mlx.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.describe.facts.fact import Fact, runs_text
from zoo.describe.facts.stacks import stacks
from zoo.recipe import Model, Spec


def fields_of(recipe: Model) -> tuple[Fact, ...]:
    """Each field as a fact: "decoder.layer.mixer.heads" with the role "decoder". Equal fields of all layers are one fact.

    A field's value is its own, or, where layers differ, a text with how many layers have which value. A field that holds a spec
    has that spec's name.
    """
    found = list[Fact]()
    roles = stacks(recipe)
    for role, stack in roles.items():
        found += _stack(role, stack)
    if list(roles.values()) != [recipe]:
        rest = [(name, value) for name, value in recipe.shown_fields() if not _holds_specs(value)]
        found = [Fact(name, name, _scalar(value)) for name, value in rest] + found
    return tuple(found)


def _holds_specs(value: object) -> bool:
    return isinstance(value, Spec) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], Spec)
    )


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
        below = f"{path}.{name}" if path else name
        if isinstance(value, Spec):
            yield below, value.name, layer
            yield from _fields(value, below, layer)
        elif _holds_specs(value):
            yield below, len(value), layer
            one = below[:-1] if below.endswith("s") else below
            for index, part in enumerate(value):
                inner = index if not path else layer
                yield one, part.name, inner
                yield from _fields(part, one, inner)
        else:
            yield below, value, layer


def _scalar(value: object) -> Any:
    """The value as a fact holds it."""
    return value if value is None or isinstance(value, bool | int | float | str | tuple) else str(value)
