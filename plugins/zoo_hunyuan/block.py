"""The attention of Hunyuan's dense models.

Axes: B batch, T query length, S key length, D width, H heads, G key/value heads, K width of a head.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

import zoo_hunyuan as specs
from zoo.blocks.attention import Attention
from zoo.blocks.mask import Mask


class LateNormAttention(Attention):
    """Attention that normalises queries and keys once they are rotated (Tencent, 2025)."""

    spec: specs.LateNormAttention

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        offset = 0 if cache is None else cache.offset
        queries, keys, values = self.project(x)
        queries = self.query_norm(self.rotate(queries, offset))  # (B, H, T, K)
        keys = self.key_norm(self.rotate(keys, offset))  # (B, G, T, K)
        if "query_scale" in self:
            queries = self.query_scale(queries, offset)
        return self.output(self.merge(self.mix_cached(queries, keys, values, mask, cache)))

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """The queries (B, H, T, K), keys and values (B, G, T, K) of x (B, T, D), none of them normalised."""
        return (
            self.split(self.query(x), self.heads),
            self.split(self.key(x), self.kv_heads),
            self.split(self.value(x), self.kv_heads),
        )
