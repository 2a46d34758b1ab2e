"""The caches of a decoder's layers; `zoo.recipe.memory` says what a layer needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.nn as nn

from zoo.blocks.mask import Mask
from zoo.blocks.protocols import MakesCache
from zoo.cache import CachePolicy, LayerCache
from zoo.errors import PluginError, RecipeError
from zoo.recipe import Spec
from zoo.recipe.memory import Memory, Needs, needs


class CachedLayer(nn.Module):
    """The base of layers that make the caches of their parts, as their specs declare them."""

    def __init__(self, spec: Spec, index: int = 0) -> None:
        super().__init__()
        self.spec, self.index = spec, index

    def make_cache(self, policy: CachePolicy | None = None) -> Any:
        """The cache of its mixer, or, where the spec says `by_part`, a `LayerCache` of those of its parts."""
        return _cache_of_parts(self, self.spec, needs(self.spec), policy, f"layers.{self.index}")


def layer_cache(layer: Any, spec: Spec, need: Needs, policy: CachePolicy | None, path: str) -> Any:
    """The cache of the layer at `path`: the layer makes it, or, where it has no `make_cache`, its parts do."""
    if isinstance(layer, MakesCache):
        return layer.make_cache(policy)
    return _cache_of_parts(layer, spec, need, policy, path)


def has_cache(layer: Any, need: Needs) -> bool:
    """Whether anything in a layer is kept from token to token, by its parts or by the layer itself."""
    return bool(need.caches) or (isinstance(layer, MakesCache) and not isinstance(layer, CachedLayer))


def _cache_of_parts(layer: Any, spec: Spec, need: Needs, policy: CachePolicy | None, path: str) -> Any:
    """RecipeError for a layer of several caches that takes one, and for a part that makes none."""
    if len(need.caches) > 1 and not need.by_part:
        names = " and ".join(need.caches)
        raise RecipeError(
            f"{path}: {names} each have a cache, and {spec.block()} takes one (it is not `by_part`)"
        )
    blocks = {below: part.block() for below, part in spec.walk()}
    caches = {}
    for below in need.caches:
        part = _part(layer, below, path)
        if not isinstance(part, MakesCache):
            raise RecipeError(
                f"{path}.{below}: {blocks[below]} has no make_cache(policy), which gives what it keeps from token to "
                "token"
            )
        caches[below] = part.make_cache(policy)
    return LayerCache(caches) if need.by_part or not caches else next(iter(caches.values()))


def _part(layer: Any, below: str, path: str) -> Any:
    """The module of a layer's part: it has the same path below the layer as the spec that it runs."""
    try:
        for step in below.split("."):
            layer = layer[int(step)] if isinstance(layer, list) else layer[step]
    except (LookupError, TypeError) as error:
        raise PluginError(f"{path}: the module does not keep its part {below} under that name") from error
    return layer


def layer_inputs(
    need: Needs, cache: Any, mask_of: Callable[[Memory, Any], Mask]
) -> tuple[Mask | dict[str, Mask], Any]:
    """The mask and the cache that a layer is called with: those of its mixer, or of its parts by their names."""
    if need.by_part:
        caches = _caches_by_part(need, cache)
        return {memory.path: mask_of(memory, caches[memory.path]) for memory in need.memories}, caches
    if isinstance(cache, LayerCache) and not (need.caches or cache.parts):
        return None, cache  # a layer without a cache, of which none says how long the text is
    return mask_of(need.memories[0], cache), cache


def _caches_by_part(need: Needs, cache: Any) -> Mapping[str, Any] | LayerCache:
    """The caches of a layer's parts by their paths; mlx-lm's, which have no names, are taken in order."""
    if isinstance(cache, LayerCache):
        return cache
    caches = [None] * len(need.memories) if cache is None else cache
    return {memory.path: part for memory, part in zip(need.memories, caches, strict=True)}
