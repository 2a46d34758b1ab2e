"""Linear layers of one input whose matrices are parts of one matrix: a single product gives the outputs of all.

A block names such layers in its attribute `joins`. Names of parameters and saved files stay as they were.
Axes: I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.quantized import FLOATS, DequantizableLayer, QuantizedLinear, quantize_arguments

PACKED = (nn.QuantizedLinear, QuantizedLinear)

_JOINED = "_joined"  # the attribute of the first layer that holds its `Joined`


class Joined:
    """The joined `arrays` of some layers by name, and each layer's `parts` of them."""

    def __init__(self, arrays: dict[str, mx.array], parts: list[dict[str, mx.array]]) -> None:
        self.arrays, self.parts = arrays, parts

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a layer has arrays of its own."""
        return type(None), ()


def joined_arrays(*layers: nn.Module) -> dict[str, mx.array] | None:
    """The arrays that give the outputs of all layers, (ΣO, I) and (ΣO,), by name; None where they cannot be joined.

    The layers' own arrays become parts of them. They are made once, unevaluated but for the floats of packed matrices.
    """
    if kind(layers[0]) is None or len({kind(layer) for layer in layers}) > 1:
        return None
    kept: Joined | None = vars(layers[0]).get(_JOINED)
    if kept is not None and all(
        layer.get(name) is part
        for layer, parts in zip(layers, kept.parts, strict=True)
        for name, part in parts.items()
    ):
        return kept.arrays
    ends = list(accumulate(layer.weight.shape[0] for layer in layers))[:-1]
    arrays: dict[str, mx.array] = {}
    parts: list[dict[str, mx.array]] = [{} for _ in layers]
    for name in multiplied(layers[0]):
        arrays[name] = _all_floats(layers) if name == FLOATS else _all(layers, name)
        for layer, own, part in zip(
            layers, parts, mx.split(arrays[name], ends), strict=True
        ):  # the same memory
            layer[name] = own[name] = part
    if FLOATS in arrays:
        mx.eval(arrays, parts)
    object.__setattr__(layers[0], _JOINED, Joined(arrays, parts))
    return arrays


def _all(layers: tuple[nn.Module, ...], name: str) -> mx.array:
    return mx.concatenate([layer[name] for layer in layers])


def _all_floats(layers: tuple[nn.Module, ...]) -> mx.array:
    """The floats of all packed matrices, (ΣO, I)."""
    biases = _all(layers, "biases") if "biases" in layers[0] else None
    with runtime.eager():
        return runtime.dequantize(
            _all(layers, "weight"), _all(layers, "scales"), biases, quantize_arguments(layers[0])
        )


def multiplied(layer: nn.Module) -> tuple[str, ...]:
    """The names of the arrays that a linear layer multiplies by, and adds."""
    names = (FLOATS, "bias") if keeps_floats(layer) else ("weight", "scales", "biases", "bias")
    return tuple(name for name in names if name == FLOATS or name in layer)


def kind(layer: nn.Module) -> tuple[Any, ...] | None:
    """The properties that linear layers must share to be joined; None for other layers."""
    added = "permutation" in layer or "global_scale" in layer  # what some formats add to packed numbers
    if type(layer) is not nn.Linear and (type(layer) not in PACKED or added):
        return None
    arrays = {name: layer[name] for name in ("weight", "scales", "biases", "bias") if name in layer}
    settings = (getattr(layer, name, None) for name in ("group_size", "bits", "mode", "keeps_floats"))
    return type(layer), *settings, *((name, array.dtype, array.shape[1:]) for name, array in arrays.items())


def joins_projections(model: nn.Module) -> bool:
    """Whether this device runs the model faster with joined projections."""
    nbytes = 0
    for module in model.modules():
        if keeps_floats(module):
            nbytes += module.float_bytes
        nbytes += sum(array.nbytes for array in module.values() if isinstance(array, mx.array))
    return runtime.joins_projections(nbytes)


def join_projections(model: nn.Module) -> None:
    """Join the layers of each block that names some, but for packed ones that keep floats. Nothing is evaluated."""
    for layers in _groups(model):
        if not keeps_floats(layers[0]):
            joined_arrays(*layers)


def make_floats(model: nn.Module) -> None:
    """Make the floats of every packed layer that keeps them, joined where possible."""
    for layers in _groups(model):
        if keeps_floats(layers[0]):
            joined_arrays(*layers)
    for layer in model.modules():
        if isinstance(layer, DequantizableLayer):
            layer.kept()


def keeps_floats(layer: nn.Module) -> bool:
    """Whether a layer is packed and keeps its floats."""
    return isinstance(layer, DequantizableLayer) and layer.keeps_floats


def _groups(model: nn.Module) -> Iterator[list[nn.Module]]:
    """Yields the layers that each block names in `joins`; none on a device that does not join them."""
    if joins_projections(model):
        for block in model.modules():
            names = getattr(block, "joins", ())
            if names and all(name in block for name in names):
                yield [block[name] for name in names]
