"""Attention with linear biases.

Axes: B batch, T query length, S key length, H heads, G key/value heads, K width of a head.
"""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

import zoo_bloom as specs
from zoo.blocks.attention import Attention
from zoo.blocks.mask import Mask, dense


class AlibiAttention(Attention):
    """Attention whose scores fall with the distance of a key (Press et al., 2021)."""

    spec: specs.AlibiAttention

    def __init__(self, spec: specs.AlibiAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        own = slopes(spec.whole or spec.heads)[spec.first : spec.first + spec.heads]
        self._slopes = mx.array(own)[:, None, None]  # (H, 1, 1)

    def mix_cached(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask, cache: Any
    ) -> mx.array:  # (B, H, T, K), two of (B, G, T, K) -> (B, H, T, K)
        """`mix` with an additive mask, of all keys and values that the tokens may see."""
        length = keys.shape[2]
        first = 0 if cache is None else cache.key_positions(length)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        bias = self.distance_bias(first, keys.shape[2])
        seen = dense(mask, length, keys.shape[2])
        if seen is not None:
            bias = mx.where(seen, bias, -math.inf)
        return self.mix(queries, keys, values, bias.astype(queries.dtype))

    def distance_bias(self, first: int | mx.array, count: int) -> mx.array:
        """What is added to the scores of keys, (1 or B, H, 1, S); `first` is their first position, or all, (B, S)."""
        positions = (
            first if isinstance(first, mx.array) and first.ndim == 2 else self.consecutive(first, count)
        )
        positions = positions[:, None, None]  # (B, 1, 1, S)
        if self.spec.rounded:
            bias = self._slopes.astype(mx.bfloat16) * positions.astype(mx.bfloat16)
            return bias.astype(mx.float32) * self.scale
        # The newest key has none, so that 16 bits tell near keys apart.
        return self._slopes * (positions - positions[..., -1:])

    @staticmethod
    def consecutive(first: int | mx.array, count: int) -> mx.array:
        """Positions one after the other from `first`, a number or (B,), on: (1 or B, S)."""
        return (first if isinstance(first, mx.array) else mx.array([first]))[:, None] + mx.arange(count)


def slopes(heads: int) -> list[float]:
    """The rate of each head: 2^(−8h/H), between which those of twice as many stand where H is no power of two."""
    power = 2 ** math.floor(math.log2(heads))
    base, between = (2 ** -(2 ** -(math.log2(count) - 3)) for count in (power, 2 * power))
    own = [base**number for number in range(1, power + 1)]
    return own + [between**number for number in range(1, 2 * (heads - power), 2)]
