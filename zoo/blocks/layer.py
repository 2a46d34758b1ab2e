"""A layer: a mixer between tokens and a feed-forward for each token, both with a residual connection; and layers' caches.

`zoo.recipe.models` says what a layer needs. Axes: B batch, T length, S source length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.mask import Mask
from zoo.blocks.model import MakesCache
from zoo.cache import CachePolicy, CrossCache, LayerCache
from zoo.errors import PluginError, RecipeError
from zoo.recipe import Spec
from zoo.recipe.models import Memory, Needs, needs


class CachedLayer(nn.Module):
    """The base of layers that make the caches of their parts, as their specs declare them."""

    def __init__(self, spec: Spec, index: int = 0) -> None:
        super().__init__()
        self.spec, self.index = spec, index

    @cached_property
    def _needs(self) -> Needs:
        return needs(self.spec)

    def make_cache(self, policy: CachePolicy | None = None) -> Any:
        """The cache of its mixer, or, where the spec says `by_part`, a `LayerCache` of those of its parts."""
        return cache_of_parts(self, self.spec, self._needs, policy, f"layers.{self.index}")


def cache_of_parts(layer: Any, spec: Spec, need: Needs, policy: CachePolicy | None, path: str) -> Any:
    """The cache of the layer at `path`, made by its parts.

    RecipeError for a layer of several caches that takes one, and for a part that makes none.
    """
    if len(need.caches) > 1 and not need.by_part:
        names = " and ".join(need.caches)
        raise RecipeError(
            f"{path}: {names} each have a cache, and {spec.block()} takes one (it is not `by_part`)"
        )
    caches = {}
    for below in need.caches:
        part = layer  # the module of a part has the same path below the layer as the spec that it runs
        try:
            for step in below.split("."):
                part = part[int(step)] if isinstance(part, list) else part[step]
        except (LookupError, TypeError) as error:
            raise PluginError(f"{path}: the module does not keep its part {below} under that name") from error
        if not isinstance(part, MakesCache):
            block = dict(spec.walk())[below].block()
            raise RecipeError(
                f"{path}.{below}: {block} has no make_cache(policy), which gives what it keeps from token to "
                "token"
            )
        caches[below] = part.make_cache(policy)
    return LayerCache(caches) if need.by_part or not caches else next(iter(caches.values()))


def layer_inputs(
    need: Needs, cache: Any, mask_of: Callable[[Memory, Any], Mask]
) -> tuple[Mask | dict[str, Mask], Any]:
    """The mask and the cache that a layer is called with: those of its mixer, or of its parts by their names."""
    if need.by_part:
        caches = dict.fromkeys(memory.path for memory in need.memories) if cache is None else cache
        return {memory.path: mask_of(memory, caches[memory.path]) for memory in need.memories}, caches
    if isinstance(cache, LayerCache) and not (need.caches or cache.parts):
        return None, cache  # a layer without a cache, of which none says how long the text is
    return mask_of(need.memories[0], cache), cache


class Layer(CachedLayer):
    """Two residual sums with a norm before or after each (Xiong et al., 2020, figure 1), or one sum of parallel parts.

    pre                          post                         parallel
    x ─┬─ norm ─ mixer ─ + ─     x ─┬─ mixer ─ + ─ norm ─     x ─┬─ norm ─ mixer ─────── + ─
       └──────────────── ┘          └───────── ┘                 ├─ norm ─ feedforward ─ ┤
                                                                 └────────────────────── ┘

    In a parallel layer without a norm for the feed-forward, the feed-forward reads the mixer's normalised input.

    Where the feed-forward is recurrent too, `mask` and `cache` hold those of both parts, by name. `passed` is given to
    the parts whose specs have `gives` or `takes`.
    """

    def __init__(
        self,
        spec: recipe.Layer,
        *,
        dim: int,
        index: int = 0,
        mixer: nn.Module,
        feedforward: nn.Module,
        mixer_norm: nn.Module | None = None,
        feedforward_norm: nn.Module | None = None,
    ) -> None:
        super().__init__(spec, index)
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm  # None is no part
        self.placement, self.parallel = spec.placement, spec.parallel
        self.residual_scale = spec.residual_scale
        self.by_part = spec.by_part
        parts = {"mixer": spec.mixer, "feedforward": spec.feedforward}
        self.remembering = frozenset(
            name for name, part in parts.items() if name == "mixer" or part.remembers
        )
        self.passing = frozenset(name for name, part in parts.items() if part.gives or part.takes)

    def __call__(
        self, x: mx.array, mask: Any = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        if self.parallel:
            return self.add_both(x, mask, cache, passed)
        x = self.add("mixer", x, mask, cache, passed)
        return self.add("feedforward", x, mask, cache, passed)

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum: x plus the output of the part of that name, called with `inputs`."""
        if self.placement == "pre":
            return x + self.scaled(self.run(name, self.normed(name, x), *inputs))
        return self.normed(name, x + self.scaled(self.run(name, x, *inputs)))

    def add_both(self, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The residual sum of a parallel layer: x, the mixer and the feed-forward, both called with `inputs`."""
        h = self.normed("mixer", x)
        mixed = self.run("mixer", h, *inputs)
        own = self.normed("feedforward", x) if "feedforward_norm" in self else h
        return x + self.scaled(mixed + self.run("feedforward", own, *inputs))

    def normed(self, name: str, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The norm of the part of that name; x itself where there is none."""
        return self[f"{name}_norm"](x) if f"{name}_norm" in self else x

    def scaled(self, y: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The output of a part times the residual scale."""
        return y if self.residual_scale == 1.0 else y * self.residual_scale

    def run(
        self, name: str, x: mx.array, mask: Any, cache: Any, passed: Mapping[str, Any] | None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The part of that name, called with what its spec asks for."""
        part = self[name]
        more = {"passed": passed} if name in self.passing else {}
        if name not in self.remembering:
            return part(x, **more)
        if self.by_part:
            mask, cache = mask and mask[name], cache and cache[name]
        return part(x, mask, cache, **more)


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
