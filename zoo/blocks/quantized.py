"""Quantized layers, with what some formats add to packed numbers.

Axes: I inputs, O outputs, E experts, V vocabulary, D width.

A device may multiply floats much faster than packed numbers. A layer that `keeps_floats` then has them beside its packed
numbers, which stay its parameters; where they are not kept, many rows at once are multiplied by floats made for them.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime

FLOATS = "_floats"  # of a layer: the numbers that its packed ones stand for; a leading underscore keeps them no parameter


class DequantizableLayer(nn.Module):
    """A layer with packed numbers that can be multiplied by the floats these stand for.

    `keeps_floats`: they are made once, when they are first needed or with `zoo.load`, and kept.
    """

    keeps_floats = False

    @property
    def float_bytes(self) -> int:
        """The bytes of its floats."""
        return 4 * self.scales.size * self.group_size

    def kept(self) -> mx.array | None:
        """The floats (…, O, I) that are kept; None where there are none."""
        if FLOATS in self or not self.keeps_floats:
            return self.get(FLOATS)
        with runtime.eager():
            floats = self.floats()
        try:
            mx.eval(floats)
        except ValueError:  # the packed numbers are traced: nothing can be kept of them
            return None
        self[FLOATS] = floats
        return floats

    def floats(self, part: slice = slice(None)) -> mx.array:
        """The numbers that the packed ones stand for, or a part of the first axis: (…, O, I) in float32."""
        biases = self.get("biases")
        floats: mx.array = runtime.dequantize(
            self.weight[part],
            self.scales[part],
            None if biases is None else biases[part],
            quantize_arguments(self),
        )
        return floats


def quantized_product(layer: DequantizableLayer, x: mx.array) -> mx.array:  # (…, I) -> (…, O)
    """x times the transposed matrix of a packed layer, in the way that is fastest here."""
    rows = x.size // x.shape[-1]
    if (floats := layer.kept()) is not None:
        return x @ floats.T
    if runtime.multiplies_floats(rows):
        return x @ layer.floats().T
    how = quantize_arguments(layer)
    return runtime.quantized_matmul(layer.weight, layer.scales, layer.get("biases"), how)(x)


def quantize_arguments(layer: nn.Module) -> runtime.QuantizeArguments:
    """How the numbers of a quantized layer are packed, as MLX's functions take it."""
    return {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}


class QuantizedLinear(DequantizableLayer, nn.QuantizedLinear):
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
        y = quantized_product(self, wide(x) if "global_scale" in self else x)
        if "global_scale" in self:
            y = y * self.global_scale
        y = y.astype(dtype)
        return y + self.bias if "bias" in self else y


class QuantizedEmbedding(DequantizableLayer, nn.QuantizedEmbedding):
    """nn.QuantizedEmbedding, whose table a tied head multiplies by in the way that is fastest here."""

    def __init__(self, layer: nn.QuantizedEmbedding) -> None:
        """The parameters and settings of `layer`."""
        nn.Module.__init__(self)
        self.group_size, self.bits, self.mode = layer.group_size, layer.bits, layer.mode
        self.num_embeddings, self.dims = layer.num_embeddings, layer.dims
        for name, array in layer.items():
            self[name] = array
        self.freeze()

    def as_linear(self, x: mx.array) -> mx.array:  # (…, D) -> (…, V)
        """Logits by the same table."""
        return quantized_product(self, x).astype(x.dtype)


class QuantizedStack(nn.Module):
    """The packed form of a layer with a `weight` (…, O, I). Names and settings are those of nn.QuantizedLinear."""

    def __init__(
        self, layer: nn.Module, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> None:
        super().__init__()
        self.group_size, self.bits, self.mode = group_size, bits, mode
        self.weight, self.scales, *biases = mx.quantize(layer.weight, group_size, bits, mode=mode)
        if biases:
            self.biases = biases[0]
        if "bias" in layer:
            self.bias = layer.bias
        self.freeze()


def quantized_extras(layer: Any) -> tuple[str, ...]:
    """The arrays beside packed numbers that a layer's quantized form can hold: for a linear layer `QuantizedLinear`'s two.

    Another layer names them in its `quantized_extras`.
    """
    if isinstance(layer, nn.Linear):
        return ("global_scale", "permutation")
    return getattr(layer, "quantized_extras", ())


def wide(x: mx.array) -> mx.array:
    """The same in a float that holds sums not yet scaled, which may exceed float16's largest number."""
    return x.astype(mx.float32) if x.dtype == mx.float16 else x
