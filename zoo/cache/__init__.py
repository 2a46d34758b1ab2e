"""KV caches and recurrent states: what a layer keeps of the tokens before, so that each new one costs one step.

A cache owns the position: `length` columns are cached, and `offset` is the position of the next token, a
number or, when rows are padded on the left, (B,).
"""

from zoo.cache.base import Cache, Snapshot
from zoo.cache.kinds import KVCache, PaddingCache, StateCache, WindowCache
from zoo.cache.layers import (
    CrossCache,
    LayerCache,
    can_merge,
    evaluate_caches,
    flatten_caches,
    merged_caches,
    refused,
)
from zoo.recipe.policy import CachePolicy

__all__ = [
    "Cache",
    "CachePolicy",
    "CrossCache",
    "KVCache",
    "LayerCache",
    "PaddingCache",
    "Snapshot",
    "StateCache",
    "WindowCache",
    "can_merge",
    "evaluate_caches",
    "flatten_caches",
    "merged_caches",
    "refused",
]
