"""T5's relative position bias. Axes: B batch, T queries, S keys, H heads, G key/value heads, K width of a head."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.attention import Attention
from zoo.blocks.mask import Mask, biased
from zoo_translation import recipes as specs


class RelativeBias(nn.Module):
    """A table of one number a bucket and head, (buckets, H) (Raffel et al., 2019, section 2.1)."""

    def __init__(self, spec: specs.RelativeBias, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.weight = mx.zeros((spec.buckets, spec.heads))

    def __call__(self, queries: int, length: int = 0, start: int = 0) -> mx.array:  # -> (1, H, T, S)
        """The bias of the scores of `queries` tokens after `length` cached ones, for the keys from `start` on."""
        query = mx.arange(length, length + queries)[:, None]  # (T, 1)
        key = mx.arange(start, length + queries)[None]  # (1, S)
        return self.weight[self.bucket(key - query)].transpose(2, 0, 1)[None]  # (T, S, H) -> (1, H, T, S)

    def bucket(self, distance: mx.array) -> mx.array:
        """The bucket of each distance, key's position − query's: any shape, 0 … buckets − 1."""
        spec = self.spec
        if spec.bidirectional:
            first, distance = (distance > 0) * spec.one_direction, mx.abs(distance)
        else:
            first, distance = 0, mx.maximum(-distance, 0)
        exact, wide = spec.max_exact, spec.one_direction - spec.max_exact
        growth = mx.log(mx.maximum(distance, 1) / exact) / math.log(spec.max_distance / exact)  # 0 … 1
        # Distances below `exact` give something negative here, which the choice after it drops.
        shared = mx.minimum(exact + (growth * wide).astype(mx.int32), spec.one_direction - 1)
        return first + mx.where(distance < exact, distance, shared)


class RelativeAttention(Attention):
    """Attention that adds a relative bias of its own to its scores."""

    def __init__(
        self, spec: specs.RelativeAttention, *, dim: int, index: int = 0, relative: nn.Module, **parts: Any
    ) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.relative = relative

    def mix_cached(
        self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask, cache: Any
    ) -> mx.array:  # (B, H, T, K), two of (B, G, T, K) -> (B, H, T, K)
        """`mix` with the bias, of all keys and values that the tokens may see."""
        count = keys.shape[2]
        before, start = (0, 0) if cache is None else (cache.length, cache.start(count))
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        bias = biased(mask, self.relative(count, before, start)).astype(queries.dtype)
        return self.mix(queries, keys, values, bias)
