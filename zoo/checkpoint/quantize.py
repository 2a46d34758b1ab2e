"""Which layers of a model are quantized, and how: one quantization for all, or a recipe that gives some more bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import mlx.nn as nn

from zoo.blocks.model import Quantizable
from zoo.checkpoint.quantization_settings import (
    AFFINE_BITS,
    AFFINE_GROUPS,
    FLOAT_MODES,
    ROUTER_BITS,
    ROUTER_GROUP,
    ROUTERS,
)
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, as_array, quantize_matrix
from zoo.errors import ZooError

Choice = Callable[[str, QuantizationSpec], QuantizationSpec | None]

# What loses most by few bits: values, what comes back to the residual path, and the logits.
DELICATE = ("*mixer.value", "*feedforward.down", "*feedforward.experts.down")
HEADS = ("head.output", "embedding.tokens")
RECIPES = {"mixed-2-6": (2, 6), "mixed-3-4": (3, 4), "mixed-3-6": (3, 6), "mixed-4-6": (4, 6)}


def parse_quantization(bits: str, group_size: int | None = None) -> QuantizationSpec:
    """The quantization that "4" or "mxfp4" asks for; ZooError, with those known, when there is none."""
    if bits in FLOAT_MODES:
        wide, group = FLOAT_MODES[bits]
        if group_size not in (None, group):
            raise ZooError(f"`group_size` {group_size}: {bits} has groups of {group}")
        return QuantizationSpec(wide, group, bits)
    if not bits.isdecimal() or int(bits) not in AFFINE_BITS[1:]:
        known = ", ".join([*map(str, AFFINE_BITS[1:]), *FLOAT_MODES])
        raise ZooError(f"`quantize` {bits}: not one of {known}")
    return QuantizationSpec(int(bits), _group(group_size))


def _group(size: int | None) -> int:
    if size not in (None, *AFFINE_GROUPS):
        raise ZooError(f"`group_size` {size}: not one of {', '.join(map(str, AFFINE_GROUPS))}")
    return size or 64


def mixed(recipe: str, layers: int, group_size: int | None = None) -> tuple[QuantizationSpec, Choice]:
    """The quantization and the choice of a mixed recipe, by name.

    The outer eighths of the layers and every third between them give `DELICATE` matrices the more bits, as llama.cpp's
    "M" mixtures do; the head always has them.
    """
    if recipe not in RECIPES:
        raise ZooError(f"`recipe` {recipe}: not one of {', '.join(RECIPES)}")
    low, high = (QuantizationSpec(bits, _group(group_size)) for bits in RECIPES[recipe])
    eighth = layers // 8

    def more(path: str, asked: QuantizationSpec) -> QuantizationSpec:
        number = next((int(step) for step in path.split(".") if step.isdecimal()), 0)
        outer = number < eighth or number >= layers - eighth or (number - eighth) % 3 == 2
        delicate = any(fnmatchcase(path, pattern) for pattern in DELICATE)
        return high if path in HEADS or (delicate and outer) else asked

    return low, more


def choose(
    path: str, layer: nn.Module | None, asked: QuantizationSpec, choices: Sequence[Choice] = ()
) -> QuantizationSpec | None:
    """The quantization of a layer's weight when `asked` is asked for; None where it stays as it is.

    Each of `choices` may change the quantization, by the layer's path, or keep the layer whole with None. Layers that have no
    quantized form, or whose inputs do not divide into groups, stay as they are.
    """
    if not isinstance(layer, Quantizable):
        return None
    quantization = QuantizationSpec(ROUTER_BITS, ROUTER_GROUP) if path.endswith(f".{ROUTERS}") else asked
    for choice in choices:
        changed = choice(path, quantization)
        if changed is None:
            return None
        quantization = changed
    return None if layer.weight.shape[-1] % quantization.group_size else quantization


def quantize(model: nn.Module, asked: QuantizationSpec, choices: Sequence[Choice] = ()) -> None:
    """Replace the layers of a model by quantized ones, unevaluated; layers already quantized stay as they are."""

    def chosen(path: str, layer: nn.Module) -> dict[str, Any] | bool:
        quantization = choose(path, layer, asked, choices)
        return quantization.as_json() if quantization else False

    nn.quantize(model, class_predicate=chosen)


def quantized(
    model: nn.Module,
    parameters: Mapping[str, Any],
    asked: QuantizationSpec,
    choices: Sequence[Choice] = (),
    fused: Iterable[Sequence[str]] = (),
) -> dict[str, Any]:
    """The parameters by path, those that `quantize` would pack as `QuantizedMatrix`; other quantizations are replaced.

    Parameters that are `fused` into one tensor where they go to have one quantization, that of the most bits among them.
    """
    layers: dict[str, Any] = dict(model.named_modules())
    quantizations: dict[str, QuantizationSpec | None] = {}
    for path in parameters:
        owner = path.removesuffix(".weight")
        quantizations[path] = (
            choose(owner, layers.get(owner), asked, choices) if path.endswith(".weight") else None
        )
    for group in fused:
        together = [quantization for path in group if (quantization := quantizations[path]) is not None]
        if len(together) == len(group):
            quantizations |= dict.fromkeys(group, max(together, key=lambda quantization: quantization.bits))
    found = dict(parameters)
    for path, quantization in quantizations.items():
        tensor = found[path]
        if quantization is not None and not (
            isinstance(tensor, QuantizedMatrix) and tensor.quantization == quantization
        ):
            found[path] = quantize_matrix(path, as_array(tensor), quantization)
    return found
