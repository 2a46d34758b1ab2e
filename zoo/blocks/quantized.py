"""Quantized linear layers, with what some formats add to packed numbers. Axes: I inputs, O outputs."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class QuantizedLinear(nn.QuantizedLinear):
    """nn.QuantizedLinear, its inputs reordered by `permutation` (I,), its outputs times `global_scale` (O or 1,).

    NVFP4 has a second scale for a whole matrix, which not every backend's product knows; it is as well applied to the
    outputs. GPTQ may sort the inputs by importance before it forms groups of them (Frantar et al., 2022). Scales may
    be wider than the activations, whose dtype stays.
    """

    def __init__(self, layer: nn.QuantizedLinear) -> None:
        """The parameters and settings of `layer`; `global_scale` and `permutation` may be added to them."""
        nn.Module.__init__(self)
        self.group_size, self.bits, self.mode = layer.group_size, layer.bits, layer.mode
        for name, array in layer.items():
            self[name] = array
        self.biases = layer.get("biases")
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:  # (…, I) -> (…, O)
        dtype = x.dtype
        if "permutation" in self:
            x = mx.take(x, self.permutation, axis=-1)
        y = mx.quantized_matmul(
            wide(x) if "global_scale" in self else x,
            self.weight,
            self.scales,
            self.get("biases"),
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )
        if "global_scale" in self:
            y = y * self.global_scale
        y = y.astype(dtype)
        return y + self.bias if "bias" in self else y


class PackedExtras:
    """A layer whose quantized form holds more than packed numbers; `packed_extras` names what."""

    packed_extras: tuple[str, ...] = ()


def packed_extras(layer: Any) -> tuple[str, ...]:
    """What the quantized form of a layer holds beside the packed numbers: a linear one both extras of `QuantizedLinear`."""
    if isinstance(layer, nn.Linear):
        return ("global_scale", "permutation")
    return layer.packed_extras if isinstance(layer, PackedExtras) else ()


def wide(x: mx.array) -> mx.array:
    """The same in a float that holds sums not yet scaled, which may exceed float16's largest number."""
    return x.astype(mx.float32) if x.dtype == mx.float16 else x
