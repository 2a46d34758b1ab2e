"""The caches of several texts in one batch, and those of all layers together. Axes: B batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache.base import Cache
from zoo.cache.layers import LayerCache


def leaves(caches: Iterable[Any]) -> Iterator[Any]:
    """The plain caches of a model's list, in order: the parts of a `LayerCache` in its place.

    What a `CrossCache` keeps of the source is in none of them.
    """
    for cache in caches:
        if isinstance(cache, LayerCache):
            yield from leaves(cache)
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


def settle(cache: Sequence[Any], tokens: int, report: Callable[[int], None] | None = None) -> None:
    """Evaluate what a pass over `tokens` left in the caches of a model: `runtime.by_layer`, or all at once.

    `report` is called after each evaluation with the tokens that its share of the pass comes to.
    """
    groups = [[layer] for layer in cache] if runtime.by_layer() else [list(cache)]
    for number, group in enumerate(groups, 1):
        mx.eval([layer.state for layer in group])
        if report is not None:
            report(tokens * number // len(groups))
