"""Checkpoint tensors into a model's parameters, and back, by the architecture's weight rules.

Which matrices of a model are quantized, and how: one quantization for all, or a recipe that gives some more bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path

from zoo import runtime, weights
from zoo.architecture import Architecture
from zoo.blocks.model import Quantizable
from zoo.blocks.quantized import QuantizedEmbedding, QuantizedLinear, quantized_extras
from zoo.checkpoint.quantization_settings import (
    AFFINE_BITS,
    AFFINE_GROUPS,
    FLOAT_MODES,
    ROUTER_BITS,
    ROUTER_GROUP,
    ROUTERS,
)
from zoo.checkpoint.quantized_matrix import (
    EXTRAS,
    PARTS,
    QuantizationSpec,
    QuantizedMatrix,
    as_array,
    join,
    parameter_matches,
    quantize_matrix,
)
from zoo.checkpoint.quantized_tensors import is_mlx, warn_of_dequantized
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ZooError
from zoo.recipe import Model


def match(
    model: nn.Module, architecture: Architecture, recipe: Model, tensors: Tensors
) -> tuple[dict[str, Any], str]:
    """The parameters of `model` by path, unread, and the layout whose rules make them of the tensors.

    They are arrays, and `QuantizedMatrix` where a layer can hold them so.

    CheckpointError when a tensor is left over, a parameter unfilled, a shape different, or a dtype no float.
    """
    wanted = dict(tree_flatten(model.parameters()))
    layouts = architecture.layouts_of(tensors.metadata.get("format"))
    order = sorted(layouts, key=lambda layout: layout != tensors.metadata.get("format", "hf"))
    problems = []
    for layout in order:
        parameters, left = weights.apply(layouts[layout], tensors.arrays, recipe, join)
        alike = not left and wanted.keys() == parameters.keys()
        if alike and all(parameter_matches(wanted[path], parameters[path]) for path in wanted):
            break
        from zoo.checkpoint.mismatch import find_mismatches

        problems.append(find_mismatches(wanted, parameters, left, layouts[layout], tensors, recipe))
    else:
        _, nearest = min(problems, key=lambda problem: problem[0])
        raise CheckpointError(nearest)
    found = resolved(model, parameters)
    packed = (tensor for tensor in tensors.arrays.values() if isinstance(tensor, QuantizedMatrix))
    warn_of_dequantized(tensors.dequantized.union(*(matrix.dequantized for matrix in packed)))
    return found, layout


def resolved(model: nn.Module, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, packed ones in the quantization that their rows have, or unpacked where a layer cannot hold them so."""
    wanted, layers = dict(tree_flatten(model.parameters())), dict(model.named_modules())
    found = dict(parameters)
    for path, tensor in parameters.items():
        if isinstance(tensor, QuantizedMatrix):
            layer = layers.get(path.removesuffix(".weight"))
            if tensor.swapped or not path.endswith(".weight") or not can_hold(layer, tensor):
                found[path] = tensor.dequantize()
            else:
                found[path] = tensor.resolved(wanted[path].shape[-1])
    return found


def fill(model: nn.Module, parameters: Mapping[str, Any], dtype: mx.Dtype | None = None) -> None:
    """Give `model` its parameters, unread; floats are cast to `dtype` when one is given.

    Layers whose weights are packed are replaced by quantized ones. Parts of a fused tensor become arrays of their own: a product
    with a matrix whose rows lie apart would copy it each time.
    """
    arrays: dict[str, Any] = {}
    packed = {}
    for path, tensor in parameters.items():
        cast = tensor if dtype is None else tensor.astype(dtype)
        if isinstance(cast, QuantizedMatrix):
            owner = path.removesuffix(".weight")
            packed[owner] = cast
            arrays |= {f"{owner}.{part}": mx.contiguous(array) for part, array in cast.parts().items()}
        else:
            arrays[path] = runtime.store_matrix(cast)

    def replaced(path: str, layer: nn.Module) -> Any:
        return quantized_layer(layer, packed[path]) if path in packed else layer

    model.update_modules(tree_map_with_path(replaced, model.leaf_modules(), is_leaf=nn.Module.is_module))
    model.load_weights(list(arrays.items()), strict=True)


def can_hold(layer: nn.Module | None, tensor: QuantizedMatrix) -> bool:
    """Whether the layer has a quantized form that supports all parts of the packed matrix."""
    extras = tensor.parts().keys() & set(EXTRAS)
    return isinstance(layer, Quantizable) and extras.issubset(quantized_extras(layer))


def quantized_layer(layer: nn.Module, tensor: QuantizedMatrix) -> Any:
    """The quantized form of a layer: the right shapes, and placeholder numbers."""
    quantized = layer.to_quantized(**tensor.quantization.as_json())
    if type(quantized) is nn.QuantizedLinear:
        quantized = QuantizedLinear(quantized)
    elif type(quantized) is nn.QuantizedEmbedding:
        quantized = QuantizedEmbedding(quantized)
    parts = tensor.parts()
    for name in parts.keys() & set(EXTRAS):
        quantized[name] = parts[name]
    return quantized


def parameters_of(model: nn.Module) -> dict[str, Any]:
    """The model's parameters by path, the parts of each quantized layer as one `QuantizedMatrix` under its weight's."""
    arrays = dict(tree_flatten(model.parameters()))
    unpacked: set[str] = set()
    for path, layer in model.named_modules():
        if "scales" not in layer or "group_size" not in vars(layer):
            continue
        weight = f"{path}.weight"
        parts = {part: arrays.pop(f"{path}.{part}", None) for part in PARTS}
        quantization = QuantizationSpec(layer.bits, layer.group_size, layer.mode)
        arrays[weight] = QuantizedMatrix(weight, quantization=quantization, dequantized=unpacked, **parts)
    return arrays


def export(model: nn.Module, architecture: Architecture, recipe: Model, layout: str = "hf") -> dict[str, Any]:
    """The model's parameters under the names and in the orientations of a layout, matrices packed where they are."""
    return renamed(parameters_of(model), architecture, recipe, layout)


def renamed(
    parameters: Mapping[str, Any], architecture: Architecture, recipe: Model, layout: str = "hf"
) -> dict[str, Any]:
    """Parameters by path to tensors by the names of a layout, in its orientations."""
    tensors, left = weights.invert(architecture.layouts[layout], parameters, recipe, join)
    if left:
        raise CheckpointError(f"{architecture.name}: no weight rule exports {', '.join(sorted(left))}")
    return dict(tensors)


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
    spec = QuantizationSpec(ROUTER_BITS, ROUTER_GROUP) if path.endswith(f".{ROUTERS}") else asked
    for choice in choices:
        changed = choice(path, spec)
        if changed is None:
            return None
        spec = changed
    return None if layer.weight.shape[-1] % spec.group_size else spec


def quantize(model: nn.Module, asked: QuantizationSpec, choices: Sequence[Choice] = ()) -> None:
    """Replace the layers of a model by quantized ones, unevaluated; layers already quantized stay as they are."""

    def chosen(path: str, layer: nn.Module) -> dict[str, Any] | bool:
        quantization = choose(path, layer, asked, choices)
        return quantization.as_json() if quantization else False

    nn.quantize(model, class_predicate=chosen)


def quantizations(
    model: nn.Module,
    parameters: Iterable[str],
    asked: QuantizationSpec,
    choices: Sequence[Choice] = (),
    fused: Iterable[Sequence[str]] = (),
) -> dict[str, QuantizationSpec]:
    """The quantization of each of the parameters, by path, that `quantize` would pack.

    Parameters that are `fused` into one tensor where they go to have one quantization, that of the most bits among them.
    """
    layers: dict[str, Any] = dict(model.named_modules())
    owners = {path: path.removesuffix(".weight") for path in parameters if path.endswith(".weight")}
    chosen = {path: choose(owner, layers.get(owner), asked, choices) for path, owner in owners.items()}
    found = {path: quantization for path, quantization in chosen.items() if quantization is not None}
    for group in fused:
        together = [found[path] for path in group if path in found]
        if len(together) == len(group):
            found |= dict.fromkeys(group, max(together, key=lambda quantization: quantization.bits))
    return found


def quantized(parameters: Mapping[str, Any], asked: Mapping[str, QuantizationSpec]) -> dict[str, Any]:
    """The parameters by path, those of `asked` as `QuantizedMatrix`; other quantizations are replaced."""
    found = dict(parameters)
    for path, quantization in asked.items():
        tensor = found[path]
        if not is_packed_as(path, tensor, quantization):
            found[path] = quantize_matrix(path, as_array(tensor), quantization)
    return found


def is_packed_as(path: str, tensor: object, quantization: QuantizationSpec) -> bool:
    """Whether a parameter is packed so already, and MLX's layout has a place for all its parts."""
    return (
        isinstance(tensor, QuantizedMatrix) and tensor.quantization == quantization and is_mlx(path, tensor)
    )
