"""Multi-head and grouped-query attention, over a text itself and over a source.

Axes: B batch, T query length, S key or source length, D width, H heads, G key/value heads, K width of a head.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe, runtime
from zoo.blocks.mask import Mask
from zoo.blocks.position import RoPE
from zoo.cache import Cache, CachePolicy, CrossCache, KVCache, WindowCache


class MultiHeadAttention(nn.Module):
    """The projections of attention and its core, softmax(Q Kᵀ · scale + mask) V for each head.

    Vaswani et al., 2017, equation 1. With fewer key/value heads than heads, H/G queries share one (Ainslie et al.,
    2023).
    """

    def __init__(self, spec: recipe.Attention | recipe.CrossAttention, *, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.heads, self.kv_heads = spec.heads, spec.kv_heads or spec.heads
        self.head_dim = spec.head_width(dim)
        self.scale = spec.scale or self.head_dim**-0.5
        self.query = nn.Linear(dim, self.heads * self.head_dim, bias=spec.bias)
        self.key = nn.Linear(dim, self.kv_heads * self.head_dim, bias=spec.bias)
        self.value = nn.Linear(dim, self.kv_heads * self.head_dim, bias=spec.bias)
        self.output = nn.Linear(self.heads * self.head_dim, dim, bias=spec.output_bias)

    def split(self, x: mx.array, heads: int) -> mx.array:
        """The heads of a projection: (B, T, heads·K) -> (B, heads, T, K)."""
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, self.head_dim).transpose(0, 2, 1, 3)

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask) -> mx.array:
        """softmax(Q Kᵀ · scale + mask) V: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K).

        `zoo.blocks.mask.dense` makes an array of a mask of any kind.
        """
        return runtime.attention(queries, keys, values, self.scale, mask)

    def merge(self, mixed: mx.array) -> mx.array:
        """The heads side by side, as the output projection reads them: (B, H, T, K) -> (B, T, H·K)."""
        batch, _, length, _ = mixed.shape
        return mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)


class Attention(MultiHeadAttention):
    """Self-attention over a text and its cache; a subclass may change one of the steps and keep the others."""

    joins: tuple[str, ...] = ("query", "key", "value")

    spec: recipe.Attention

    def __init__(
        self,
        spec: recipe.Attention,
        *,
        dim: int,
        index: int = 0,
        rope: nn.Module | None = None,
        query_norm: Any = None,
        key_norm: Any = None,
        query_scale: Any = None,
    ) -> None:
        super().__init__(spec, dim=dim)
        self.query_norm, self.key_norm, self.rope = query_norm, key_norm, rope  # None is no part
        self.query_scale = query_scale

    def make_cache(self, policy: CachePolicy | None = None) -> Cache:
        """A cache of keys and values, of the last `window` only when there is one."""
        return KVCache(policy) if self.spec.window is None else WindowCache(self.spec.window, policy)

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.output(self.attend(x, mask, cache))

    def attend(self, x: mx.array, mask: Mask, cache: Any) -> mx.array:  # (B, T, D) -> (B, T, H·K)
        """The heads side by side, before the output projection."""
        queries, keys, values = self.project(x)
        offset = 0 if cache is None else cache.offset
        late = caches_unrotated_keys(self.rope, cache)
        places = cache.key_positions(x.shape[1]) if late else 0
        angles = {"least_length": cache.least_length} if late else {}
        queries, keys = self.rotate(queries, offset, **angles), keys if late else self.rotate(keys, offset)
        if "query_scale" in self:
            queries = self.query_scale(queries, offset)
        if not late:
            return self.merge(self.mix_cached(queries, keys, values, mask, cache))
        keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        return self.merge(self.mix(queries, self.rotate(keys, places, **angles), values, mask))

    def mix_cached(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask, cache: Any
    ) -> mx.array:  # (B, H, T, K), two of (B, G, T, K) -> (B, H, T, K)
        """`mix` with all keys and values that the tokens may see: the cache's, if there is one, and these."""
        if cache is None:
            return self.mix(queries, keys, values, mask)
        plain = type(self).mix is MultiHeadAttention.mix
        if plain and queries.shape[2] == 1 and getattr(cache, "attends_packed", False):
            mixed: mx.array = cache.attend(queries, keys, values, self.scale, mask)
            return mixed
        keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        return self.mix(queries, keys, values, mask)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """The queries (B, H, T, K), keys and values (B, G, T, K) of x (B, T, D); queries and keys are normalised."""
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        keys = self.split(self.key(x), self.kv_heads)  # (B, G, T, K)
        values = self.split(self.value(x), self.kv_heads)  # (B, G, T, K)
        if "query_norm" in self:
            queries = self.query_norm(queries)
        if "key_norm" in self:
            keys = self.key_norm(keys)
        return queries, keys, values

    def rotate(self, x: mx.array, offset: int | mx.array, least_length: int = 0) -> mx.array:
        """Queries (B, H, T, K) or keys (B, G, T, K) rotated by their positions: `offset` is the first, or all, (B, T).

        Angles that depend on the length of the text are those of `least_length` tokens or more.
        """
        if self.rope is None:
            return x
        return self.rope(x, offset, least_length) if least_length else self.rope(x, offset)


def caches_unrotated_keys(rope: nn.Module | None, cache: Any) -> bool:
    """Whether keys are cached before they are rotated, because the length of the text changes their angles.

    mlx-lm's caches do not promise the order of the keys that they return, so those are cached after it.
    """
    return isinstance(rope, RoPE) and rope.depends_on_length and isinstance(cache, Cache)


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
