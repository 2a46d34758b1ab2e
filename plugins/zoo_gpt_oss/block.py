"""The blocks of gpt-oss. Axes: B batch, T query length, S key length, H heads, K width of a head, F hidden."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

import zoo_gpt_oss as specs
from zoo.blocks import attention, feedforward
from zoo.blocks.mask import Mask


class SinkAttention(attention.Attention):
    """Attention whose softmax has one more column, a learned score for each head, without a value (OpenAI, 2025)."""

    def __init__(self, spec: specs.SinkAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.sinks = mx.zeros((spec.heads,))

    def mix(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask
    ) -> mx.array:  # (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)
        return mx.fast.scaled_dot_product_attention(
            queries, keys, values, scale=self.scale, mask=mask, sinks=self.sinks
        )


class ClippedExperts(feedforward.Experts):
    """Gated feed-forwards whose gate and up are clipped, as the released code has them (OpenAI, 2025)."""

    spec: specs.ClippedExperts

    def join(self, gate: mx.array, up: mx.array) -> mx.array:  # (…, F), (…, F) -> (…, F)
        limit = self.spec.limit
        gate, up = mx.minimum(gate, limit), mx.clip(up, -limit, limit)
        return (up + 1) * gate * mx.sigmoid(self.spec.alpha * gate)
