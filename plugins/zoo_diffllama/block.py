"""Differential attention. Axes: B batch, T queries, S keys, H heads, G key/value heads, K width of a head."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx

import zoo_diffllama as specs
from zoo.blocks.attention import Attention
from zoo.blocks.mask import Mask


class DifferentialAttention(Attention):
    """(softmax(Q₁ K₁ᵀ) − λ softmax(Q₂ K₂ᵀ)) V for pairs of heads (Ye et al., 2024, equation 1)."""

    spec: specs.DifferentialAttention

    def __init__(self, spec: specs.DifferentialAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.start = 0.8 - 0.6 * math.exp(-0.3 * index)  # λ at first (section 2.1)
        for name in specs.LAMBDAS:
            self[name] = 0.1 * mx.random.normal((self.head_dim,))

    def mix(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask
    ) -> mx.array:  # (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)
        """Heads of the first half less λ times those of the second: pairs have 2K numbers, two heads' places."""
        halves = mx.split(values, 2, axis=1)  # (B, G/2, S, K) each
        both = [
            super(DifferentialAttention, self).mix(queries, keys, mx.tile(v, (1, 2, 1, 1)), mask)
            for v in halves
        ]
        first, second = mx.split(mx.concatenate(both, axis=-1), 2, axis=1)  # (B, H/2, T, 2K) each
        # In float32: λ may be large where no norm has scaled the difference yet.
        wide = first.astype(mx.float32) - self.factor() * second.astype(mx.float32)
        found = ((1 - self.start) * mx.fast.rms_norm(wide, None, self.spec.eps)).astype(values.dtype)
        return mx.unflatten(found, -1, (2, -1)).transpose(0, 1, 3, 2, 4).flatten(1, 2)

    def factor(self) -> mx.array:
        """λ, what the second map is multiplied by: exp(q₁ · k₁) − exp(q₂ · k₂) + its start."""
        q1, k1, q2, k2 = (self[name].astype(mx.float32) for name in specs.LAMBDAS)
        return mx.exp((q1 * k1).sum()) - mx.exp((q2 * k2).sum()) + self.start
