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
    for field, part in spec.children():
        yield from with_widths(part, _width(spec, field, dim), f"{path}.{field}" if path else field)


def _width(spec: Spec, field: str, dim: int) -> int:
    """The width of a part at "mixer" or "layers.3"."""
    return spec.width(field.partition(".")[0], dim)


def memories(recipe: Model) -> Iterator[tuple[Spec, int]]:
    """The parts of the decoder's layers that have a cache (mixers, recurrent parts), each with its width."""
    decoder = stacks(recipe).get(DECODER)
    if decoder is None or decoder.causality == "full":
        return
    for layer in decoder.layers:
        yield from _remembering(layer, decoder.dim)


def _remembering(spec: Spec, dim: int) -> Iterator[tuple[Spec, int]]:
    for field, part in spec.children():
        width = _width(spec, field, dim)
        if part.remembers:
            yield part, width
        else:
            yield from _remembering(part, width)
