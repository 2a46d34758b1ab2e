"""The stacks of layers that a recipe has, by their roles, and all its specs with their widths. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.recipe import Model, Spec

DECODER, ENCODER = "decoder", "encoder"


def stacks(recipe: Model) -> dict[str, Model]:
    """The models with layers in a recipe: by "encoder" and "decoder"; none where the layers are not known.

    A bidirectional decoder counts as a decoder. A model of a third party whose parts are not
    named so is a decoder when it has layers.
    """
    parts: dict[str, Any] = dict(recipe.parts())
    if isinstance(parts.get("layers"), tuple):
        return {ENCODER if recipe.name == ENCODER else DECODER: recipe}
    found = {role: parts[role] for role in (ENCODER, DECODER) if role in parts}
    return {
        role: stack for role, stack in found.items() if isinstance(dict(stack.parts()).get("layers"), tuple)
    }


def is_opaque(recipe: Model) -> bool:
    """Whether another library's code runs the recipe, so that only its sums are known."""
    return not stacks(recipe)


def with_widths(spec: Spec, dim: int, path: str = "") -> Iterator[tuple[str, Spec, int]]:
    """A spec and all specs below it, each with its path and its width."""
    yield path, spec, dim
    for name, value in spec.parts():
        below, width = (f"{path}.{name}" if path else name), spec.width(name, dim)
        if isinstance(value, tuple):
            for index, part in enumerate(value):
                yield from with_widths(part, width, f"{below}.{index}")
        else:
            yield from with_widths(value, width, below)


def memories(recipe: Model) -> Iterator[tuple[Spec, int]]:
    """The parts of the decoder's layers that have a cache (mixers, recurrent parts), each with its width."""
    decoder = stacks(recipe).get(DECODER)
    if decoder is None or decoder.causality == "full":
        return
    for layer in decoder.layers:
        yield from _remembering(layer, decoder.dim)


def _remembering(spec: Spec, dim: int) -> Iterator[tuple[Spec, int]]:
    for name, value in spec.parts():
        for part in value if isinstance(value, tuple) else (value,):
            width = spec.width(name, dim)
            if part.remembers:
                yield part, width
            else:
                yield from _remembering(part, width)
