"""A linear layer of packed numbers with what some formats add to them. Axes: I inputs, O outputs."""

import mlx.core as mx
import mlx.nn as nn


class QuantizedLinear(nn.QuantizedLinear):
    """nn.QuantizedLinear, its inputs reordered by `permutation` (I,), its outputs times `global_scale` (O or 1,).

    NVFP4 has a second scale for a whole matrix, which not every backend's product knows; it is as well applied to the
    outputs. GPTQ may sort the inputs by importance before it forms groups of them (Frantar et al., 2022). Scales may
    be wider than the activations, whose dtype stays.
    """

    def __call__(self, x):  # (…, I) -> (…, O)
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


def wide(x):
    """The same in a float that holds sums not yet scaled, which pass float16's largest number."""
    return x.astype(mx.float32) if x.dtype == mx.float16 else x
