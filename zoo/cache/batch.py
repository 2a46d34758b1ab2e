"""The caches of several texts in one batch, and those of all layers together. Axes: B batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache.base import Cache
from zoo.cache.layers import LayerCache
from zoo.recipe.policy import CachePolicy


def flatten_caches(caches: Iterable[Any]) -> Iterator[Any]:
    """The plain caches of a model's list, in order: the parts of a `LayerCache` in its place.

    What a `CrossCache` keeps of the source is in none of them.
    """
    for cache in caches:
        if isinstance(cache, LayerCache):
            yield from flatten_caches(cache)
        else:
            yield cache


def can_merge(caches: Iterable[Any]) -> bool:
    """Whether every cache of a model's list can be merged; a cache of another library cannot."""
    return all(isinstance(cache, Cache) and cache.mergeable for cache in caches)


def merged(caches: Sequence[Any]) -> Any:
    """The rows of several caches of one kind and policy in one, padded on the left to the length of the longest.

    Each may have several rows, and padding. The caches that were merged stay as they are.
    """
    return type(caches[0]).merge(caches)


def merged_caches(models: Sequence[Sequence[Any]]) -> list[Any]:
    """The caches of several texts, each a model's list, as the list of one batch."""
    return [merged(layer) for layer in zip(*models, strict=True)]


def evaluate_caches(cache: Sequence[Any], tokens: int, report: Callable[[int], None] | None = None) -> None:
    """Evaluate what a pass over `tokens` left in the caches of a model: `runtime.evaluates_by_layer`, or all at once.

    `report` is called after each evaluation with the tokens that its share of the pass comes to.
    """
    groups = [[layer] for layer in cache] if runtime.evaluates_by_layer() else [list(cache)]
    for number, group in enumerate(groups, 1):
        mx.eval([layer.state for layer in group])
        if report is not None:
            report(tokens * number // len(groups))


def refused(caches: Iterable[Any], policy: CachePolicy) -> str | None:
    """The reason, naming the setting, why a model's caches cannot follow a policy; None when they can.

    Those of recurrent parts stay as they are, the same for any text. A policy for keys and values needs one cache of these.
    """
    asked = {"max_size": policy.max_size is not None, "bits": policy.quantizes}
    found = list(flatten_caches(caches))
    for part, setting in (("max_size", "max_kv_size"), ("bits", "kv_bits")):
        if not asked[part]:
            continue
        for cache in found:
            if not isinstance(cache, Cache):
                return f"`{setting}`: {type(cache).__name__} is another library's cache, which is made by its own rules"
            if part not in cache.obeys and not cache.constant:
                return f"`{setting}`: {type(cache).__name__} keeps what it is given"
        if all(cache.constant for cache in found):
            return f"`{setting}`: this model keeps no keys and values, but states, whose size no text changes"
    return None
