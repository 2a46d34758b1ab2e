"""Cross-attention. Axes: B batch, T target length, S source length, D width, G key/value heads, K head width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.attention import MultiHeadAttention
from zoo.blocks.layer import Layer
from zoo.blocks.mask import Mask
from zoo.cache import CachePolicy, CrossCache


class CrossAttention(MultiHeadAttention):
    """Attention with queries from the target, keys and values from the source (Vaswani et al., 2017, 3.2.3)."""

    def __init__(self, spec: recipe.CrossAttention, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim)

    def __call__(
        self, x: mx.array, memory: mx.array | None, mask: Mask = None, cache: CrossCache | None = None
    ) -> mx.array:  # (B, T, D), (B or 1, S, D) -> (B, T, D)
        """`memory` is the encoder's output; it is not needed once a cache has its keys and values."""
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        if cache is not None and cache.keys is not None:
            keys, values = cache.keys, cache.values
            mask = cache.mask if mask is None else mask
        else:
            keys = self.split(self.key(memory), self.kv_heads)  # (B, G, S, K)
            values = self.split(self.value(memory), self.kv_heads)  # (B, G, S, K)
            if cache is not None:  # every later token reads them: each head's in one piece is quicker
                keys, values = mx.contiguous(keys), mx.contiguous(values)
                cache.keys, cache.values, cache.mask = keys, values, mask
        if keys.shape[0] != x.shape[0]:  # one source for all rows, as in a beam search
            keys = mx.broadcast_to(keys, (x.shape[0], *keys.shape[1:]))
            values = mx.broadcast_to(values, (x.shape[0], *values.shape[1:]))
        return self.output(self.merge(self.mix(queries, keys, values, mask)))  # (B, T, D)


class CrossLayer(Layer):
    """Three residual sums: the mixer, cross-attention, the feed-forward. Norms as in `Layer`."""

    def __init__(
        self,
        spec: recipe.CrossLayer,
        *,
        dim: int,
        index: int = 0,
        cross: nn.Module,
        cross_norm: nn.Module,
        **parts: nn.Module,
    ) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.cross, self.cross_norm = cross, cross_norm

    def make_cache(self, policy: CachePolicy | None = None) -> CrossCache:
        """The mixer's cache, with room for the source's keys and values."""
        return CrossCache(self.mixer.make_cache(policy))

    def __call__(  # type: ignore[override]
        self,
        x: mx.array,
        mask: Mask = None,
        cache: CrossCache | None = None,
        memory: mx.array | None = None,
        memory_mask: mx.array | None = None,
    ) -> mx.array:  # (B, T, D), memory (B or 1, S, D) -> (B, T, D)
        x = self.add("mixer", x, mask, None if cache is None else cache.mixer)
        x = self.add("cross", x, memory, memory_mask, cache)
        return self.add("feedforward", x)

    def run(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self[name](x, *inputs)
