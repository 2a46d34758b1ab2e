"""Caches of layers with several parts, of several texts in one batch, and those of all layers together.

Axes: B batch, G key/value heads, S source length, K width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import mlx.core as mx

from zoo import runtime
from zoo.cache.base import Cache
from zoo.recipe.policy import CachePolicy


class LayerCache(Cache):
    """The caches of a layer's parts, by the names of the parts; they take in the same tokens and advance together.

    What goes back, trims or takes snapshots, asks the parts (`flatten_caches`).
    """

    handled = frozenset({"parts"})

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = dict(parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts.values())

    def __getitem__(self, name: str) -> Any:
        return self.parts[name]

    @property
    def length(self) -> int:  # type: ignore[override]
        """How many columns are cached."""
        return next((part.length for part in self), 0)

    @property
    def offset(self) -> int | mx.array:
        return next((part.offset for part in self), 0)

    @property
    def padding(self) -> mx.array | None:
        """Each row's left padding (B,)."""
        return next((part.padding for part in self), None)

    @padding.setter
    def padding(self, padding: mx.array | None) -> None:
        for part in self:
            part.padding = padding

    @property
    def most_padding(self) -> int:
        return next((part.most_padding for part in self), 0)

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for part in self for array in part.state]

    @property
    def held(self) -> int:
        """How many numbers of a row its parts keep."""
        return sum(part.held for part in self)

    @property
    def mergeable(self) -> bool:
        """Whether all parts are, and nothing is kept beside them."""
        return all(part.mergeable for part in self) and not self.keeps_more

    def start(self, queries: int) -> int:
        """The column of the oldest key that any part will be given with `queries` new tokens."""
        return min((part.start(queries) for part in self), default=0)

    def select(self, rows: mx.array) -> None:
        for part in self:
            part.select(rows)

    @classmethod
    def merge(cls, caches: Sequence[Self]) -> Self:
        """One cache whose parts have the rows of several."""
        parts = {name: [cache[name] for cache in caches] for name in caches[0].parts}
        return cls({name: type(same[0]).merge(same) for name, same in parts.items()})

    def compact(self) -> None:
        for part in self:
            part.compact()


class CrossCache(LayerCache):
    """The cache of a layer with cross-attention: that of its mixer, and the source's keys and values.

    `keys` and `values` (B, G, S, K) are set once, by the cross-attention, with the mask (B, 1, 1, S) that it was given; with
    one row they serve every target. In a merged batch, sources are padded on the right and `mask` says which columns are a
    row's: the cross-attention uses it where `decode` is given no `memory_mask`.
    """

    handled = frozenset({"parts", "mixer", "keys", "values", "mask"})

    def __init__(self, mixer: Any) -> None:
        super().__init__({"mixer": mixer})
        self.mixer, self.bound = mixer, mixer.bound
        self.keys: Any = None
        self.values: Any = None
        self.mask: mx.array | None = None

    @property
    def state(self) -> list[mx.array]:
        return [*super().state, *([] if self.keys is None else [self.keys, self.values])]

    @property
    def held(self) -> int:
        """How many numbers of a row the target's cache keeps; the source's do not grow with it."""
        return self.mixer.held

    @property
    def mergeable(self) -> bool:
        """Whether its mixer's cache is, and the source's keys are there."""
        return self.keys is not None and super().mergeable

    def select(self, rows: mx.array) -> None:
        super().select(rows)
        if self.keys is not None and self.keys.shape[0] > 1:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if self.mask is not None and self.mask.shape[0] > 1:
            self.mask = self.mask[rows]

    @classmethod
    def merge(cls, caches: Sequence[Self]) -> Self:
        """One cache with the rows of several, whose sources are padded on the right."""
        made = cls(type(caches[0].mixer).merge([cache.mixer for cache in caches]))
        most = max(cache.keys.shape[2] for cache in caches)
        keys, values, masks = [], [], []
        for cache in caches:
            rows, length = cache.rows, cache.keys.shape[2]
            extra = [(0, 0), (0, 0), (0, most - length), (0, 0)]
            keys.append(mx.pad(_rows(cache.keys, rows), extra))
            values.append(mx.pad(_rows(cache.values, rows), extra))
            real = mx.ones((rows, 1, 1, length), dtype=mx.bool_) if cache.mask is None else cache.mask
            masks.append(mx.pad(_rows(real, rows), [(0, 0), (0, 0), (0, 0), (0, most - length)]))
        made.keys, made.values = mx.concatenate(keys), mx.concatenate(values)
        padded = any(cache.mask is not None or cache.keys.shape[2] < most for cache in caches)
        made.mask = mx.concatenate(masks) if padded else None
        return made


def _rows(array: mx.array, rows: int) -> mx.array:
    """An array of one row, or of `rows`, with so many."""
    return mx.broadcast_to(array, (rows, *array.shape[1:]))


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


def merged_caches(models: Sequence[Sequence[Any]]) -> list[Any]:
    """The caches of several texts, each a model's list, as the list of one batch.

    Those of a layer are of one kind and policy, and are padded on the left to the length of the longest. Each may have
    several rows, and padding. The caches that were merged stay as they are.
    """
    return [type(layer[0]).merge(layer) for layer in zip(*models, strict=True)]


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
