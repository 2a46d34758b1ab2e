"""Which layers of a model are quantized, and how: one packing for all, or a recipe that gives some more bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import mlx.nn as nn

from zoo.blocks.protocols import Quantizable
from zoo.checkpoint.packed import Packed, Packing, dense, pack
from zoo.checkpoint.packings import (
    AFFINE_BITS,
    AFFINE_GROUPS,
    FLOAT_MODES,
    ROUTER_BITS,
    ROUTER_GROUP,
    ROUTERS,
)
from zoo.errors import ZooError

Choice = Callable[[str, Packing], Packing | None]

# What loses most by few bits: values, what comes back to the residual path, and the logits.
DELICATE = ("*mixer.value", "*feedforward.down", "*feedforward.experts.down")
HEADS = ("head.output", "embedding.tokens")
RECIPES = {"mixed-2-6": (2, 6), "mixed-3-4": (3, 4), "mixed-3-6": (3, 6), "mixed-4-6": (4, 6)}


def packing_of(bits: str, group_size: int | None = None) -> Packing:
    """The packing that "4" or "mxfp4" asks for; ZooError, with those known, when there is none."""
    if bits in FLOAT_MODES:
        wide, group = FLOAT_MODES[bits]
        if group_size not in (None, group):
            raise ZooError(f"`group_size` {group_size}: {bits} has groups of {group}")
        return Packing(wide, group, bits)
    if not bits.isdecimal() or int(bits) not in AFFINE_BITS[1:]:
        known = ", ".join([*map(str, AFFINE_BITS[1:]), *FLOAT_MODES])
        raise ZooError(f"`quantize` {bits}: not one of {known}")
    return Packing(int(bits), _group(group_size))


def _group(size: int | None) -> int:
    if size not in (None, *AFFINE_GROUPS):
        raise ZooError(f"`group_size` {size}: not one of {', '.join(map(str, AFFINE_GROUPS))}")
    return size or 64


def mixed(recipe: str, layers: int, group_size: int | None = None) -> tuple[Packing, Choice]:
    """The packing and the choice of a mixed recipe, by name.

    The outer eighths of the layers and every third between them give `DELICATE` matrices the more bits, as llama.cpp's
    "M" mixtures do; the head always has them.
    """
    if recipe not in RECIPES:
        raise ZooError(f"`recipe` {recipe}: not one of {', '.join(RECIPES)}")
    low, high = (Packing(bits, _group(group_size)) for bits in RECIPES[recipe])
    eighth = layers // 8

    def more(path: str, asked: Packing) -> Packing:
        number = next((int(step) for step in path.split(".") if step.isdecimal()), 0)
        outer = number < eighth or number >= layers - eighth or (number - eighth) % 3 == 2
        delicate = any(fnmatchcase(path, pattern) for pattern in DELICATE)
        return high if path in HEADS or (delicate and outer) else asked

    return low, more


def choose(path: str, layer: Any, asked: Packing, choices: Sequence[Choice] = ()) -> Packing | None:
    """How the weight of a layer is packed when `asked` is asked for; None where it stays as it is.

    Each of `choices` may change the packing, by the layer's path, or keep the layer whole with None. Layers that have no
    quantized form, or whose inputs do not divide into groups, stay as they are.
    """
    if not isinstance(layer, Quantizable):
        return None
    packing = Packing(ROUTER_BITS, ROUTER_GROUP) if path.endswith(f".{ROUTERS}") else asked
    for choice in choices:
        changed = choice(path, packing)
        if changed is None:
            return None
        packing = changed
    return None if layer.weight.shape[-1] % packing.group_size else packing


def quantize(model: Any, asked: Packing, choices: Sequence[Choice] = ()) -> None:
    """Replace the layers of a model by quantized ones, unevaluated; layers already quantized stay as they are."""

    def chosen(path: str, layer: Any) -> dict[str, Any] | bool:
        packing = choose(path, layer, asked, choices)
        return packing.as_json() if packing else False

    nn.quantize(model, class_predicate=chosen)


def quantized(
    model: Any,
    parameters: Mapping[str, Any],
    asked: Packing,
    choices: Sequence[Choice] = (),
    fused: Iterable[Sequence[str]] = (),
) -> dict[str, Any]:
    """The parameters by path, those that `quantize` would pack as `Packed`; other packings are replaced.

    Parameters that are `fused` into one tensor where they go to have one packing, that of the most bits among them.
    """
    layers: dict[str, Any] = dict(model.named_modules())
    packings: dict[str, Packing | None] = {}
    for path in parameters:
        owner = path.removesuffix(".weight")
        packings[path] = (
            choose(owner, layers.get(owner), asked, choices) if path.endswith(".weight") else None
        )
    for group in fused:
        together = [packing for path in group if (packing := packings[path]) is not None]
        if len(together) == len(group):
            packings |= dict.fromkeys(group, max(together, key=lambda packing: packing.bits))
    found = dict(parameters)
    for path, packing in packings.items():
        tensor = found[path]
        if packing is not None and not (isinstance(tensor, Packed) and tensor.packing == packing):
            found[path] = pack(path, dense(tensor), packing)
    return found
