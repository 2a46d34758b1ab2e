"""Keys and values in 4 or 8 bits, each vector in one row of words.

Axes: B batch, G key/value heads, T columns, K width, W words of 32 bits.
"""

from __future__ import annotations

import mlx.core as mx

from zoo.errors import PromptError
from zoo.recipe.policy import CachePolicy


class KVQuantizer:
    """Vectors of numbers as words: groups of `bits` bits, then their scales and biases in the vectors' own dtype.

    x ≈ scale · q + bias for the numbers of a group, q a whole number of `bits` bits (`mx.quantize`, mode "affine").
    """

    def __init__(self, bits: int, policy: CachePolicy) -> None:
        self.bits, self.policy = bits, policy
        self.group = policy.group_size
        self.width = 0
        self.dtype = mx.float32

    def quantize(self, x: mx.array) -> mx.array:  # (B, G, T, K) -> (B, G, T, W)
        """PromptError for a width without groups."""
        self.width, self.dtype = x.shape[-1], x.dtype
        group = self.policy.group(self.width)
        if group is None:
            raise PromptError(
                f"`kv_bits`: vectors of {self.width} numbers are no groups of 32, 64 or 128 that share a scale"
            )
        self.group = group
        words, scales, biases = mx.quantize(x, group_size=group, bits=self.bits)
        return mx.concatenate([words, mx.view(mx.concatenate([scales, biases], axis=-1), mx.uint32)], axis=-1)

    def dequantize(self, words: mx.array) -> mx.array:  # (B, G, T, W) -> (B, G, T, K)
        """The numbers that `quantize` left of those that it was given, in their dtype."""
        quantized, rest = mx.split(words, [self.width * self.bits // 32], axis=-1)
        scales, biases = mx.split(mx.view(rest, self.dtype), 2, axis=-1)
        return mx.dequantize(quantized, scales, biases, group_size=self.group, bits=self.bits)
