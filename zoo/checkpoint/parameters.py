"""Checkpoint tensors into a model's parameters, and back, by the architecture's weight rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path

from zoo import runtime, weights
from zoo.architecture import Architecture
from zoo.blocks.model import Quantizable
from zoo.blocks.quantized import QuantizedEmbedding, QuantizedLinear, quantized_extras
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, join, parameter_matches
from zoo.checkpoint.quantized_tensors import warn_of_dequantized
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
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
        raise CheckpointError(str(min(problems, key=len)))  # of the layout that is nearest
    resolved = _resolved(model, parameters, wanted)
    warn_of_dequantized(
        tensors.dequantized.union(
            *(t.dequantized for t in tensors.arrays.values() if isinstance(t, QuantizedMatrix))
        )
    )
    return resolved, layout


def placed(
    model: nn.Module, architecture: Architecture, recipe: Model, tensors: Tensors, layout: str
) -> dict[str, Any]:
    """The parameters made of some tensors of a checkpoint that `match` has accepted as a whole, in this layout."""
    rules = architecture.layouts_of(tensors.metadata.get("format"))[layout]
    parameters, _ = weights.apply(rules, tensors.arrays, recipe, join)
    return _resolved(model, parameters, dict(tree_flatten(model.parameters())))


def _resolved(model: nn.Module, parameters: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, packed ones in the quantization that their rows have, or unpacked where a layer cannot hold them so."""
    found, layers = dict(parameters), dict(model.named_modules())
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

    Layers whose weights are packed are replaced by quantized ones.
    """
    arrays: dict[str, Any] = {}
    packed = {}
    streams = runtime.assign_streams({path: tensor.nbytes for path, tensor in parameters.items()})
    for path, tensor in parameters.items():
        with runtime.on_stream(streams[path]):
            cast = tensor if dtype is None else tensor.astype(dtype)
            if isinstance(cast, QuantizedMatrix):
                owner = path.removesuffix(".weight")
                packed[owner] = cast
                # A product with rows that lie apart would copy them each time.
                arrays |= {f"{owner}.{part}": mx.contiguous(array) for part, array in cast.parts().items()}
            else:
                arrays[path] = cast

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


def quantizations(
    tensors: Tensors, parameters: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], QuantizationSpec | None]]:
    """Each matrix's names, in the checkpoint and as a parameter, and its quantization in the model or the checkpoint."""
    resolved = {
        tensor.name: (path, tensor)
        for path, tensor in parameters.items()
        if isinstance(tensor, QuantizedMatrix)
    }
    for name, tensor in tensors.arrays.items():
        path, final = resolved.get(name, (name, tensor))
        names = tuple(text.removesuffix(".weight") for text in (name, path))
        yield names, final.quantization if isinstance(final, QuantizedMatrix) else None


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


EXTRAS = ("global_scale", "permutation")  # what some formats have beside MLX's own parts
PARTS = ("weight", "scales", "biases", *EXTRAS)


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
