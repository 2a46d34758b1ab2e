"""Caches of keys and values.

Axes: B batch, G key/value heads, T new, S cached, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx

from zoo.cache.base import Cache, Snapshot
from zoo.cache.columns import Columns
from zoo.cache.policy import CachePolicy


class KVCache(Cache):
    """The keys and values of every token, in buffers that grow."""

    by_column = True
    trims = True
    restores = True

    def __init__(self, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.keys, self.values = self.columns(), self.columns()

    def columns(self) -> Columns:
        """Empty columns."""
        return Columns(reserve=self.policy.reserve)

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [*self.keys.state, *self.values.state]

    @property
    def held(self) -> int:
        """How many numbers it keeps of one row of the batch, without those of `spare`."""
        return sum(array.size // array.shape[0] for array in self.state) - self.spare

    @property
    def spare(self) -> int:
        """The numbers of a row in columns that no token has filled yet, or that no token sees any more."""
        return self.keys.spare(self.length) + self.values.spare(self.length)

    def counterpart(self) -> Any:
        """mlx-lm's growing cache."""
        from mlx_lm.models import cache

        return cache.KVCache()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (B, G, T, K) and give all that the new tokens may see, (B, G, S, K)."""
        before, self.length = self.length, self.length + keys.shape[2]
        return self.keys.add(keys, before), self.values.add(values, before)

    @property
    def mergeable(self) -> bool:
        """Whether it has a token."""
        return self.length > 0

    def select(self, rows: mx.array) -> None:
        """Keep these rows of the batch in this order (B,)."""
        self.keys.select(rows)
        self.values.select(rows)
        self.padding = None if self.padding is None else self.padding[rows]

    def snapshot(self, row: int = 0) -> Snapshot:
        """What it holds of one row: keys and values (1, G, S, K)."""
        length = self.length - (0 if self.padding is None else int(self.padding[row].item()))
        count = self.keys.needed(length)
        arrays = () if not length else (self.keys.row(row, count), self.values.row(row, count))
        mx.eval(arrays)
        return Snapshot(type(self).__name__, length, arrays, self.by_column)

    def restore(self, snapshot: Snapshot) -> None:
        """Become the cache, of one row, that the snapshot was taken of."""
        self.keys, self.values = self.columns(), self.columns()
        if snapshot.arrays:
            self.keys.fill(snapshot.arrays[0])
            self.values.fill(snapshot.arrays[1])
        self.length, self.padding = snapshot.length, None

    def trim(self, count: int) -> None:
        """Forget the last `count` columns."""
        self.keys.trim(count)
        self.values.trim(count)
        self.length -= count

    @classmethod
    def joined(cls, caches: Sequence[Self]) -> Self:
        """A cache with the arrays of several in one batch, columns aligned on the right."""
        made, lengths = caches[0].empty(), [cache.length for cache in caches]
        made.keys.merge([cache.keys for cache in caches], lengths)
        made.values.merge([cache.values for cache in caches], lengths)
        return made

    def empty(self) -> Self:
        """A cache like this one that has nothing yet."""
        return type(self)(self.policy)

    def drop_columns(self, count: int) -> None:
        """Forget the first `count` columns, which are padding in every row."""
        self.keys.drop(count)
        self.values.drop(count)


class WindowCache(KVCache):
    """The keys and values of a sliding window: the last `window` − 1, and those of the step under way."""

    by_column = False
    trims = False

    def __init__(self, window: int, policy: CachePolicy | None = None) -> None:
        self.window = window
        super().__init__(policy)

    def columns(self) -> Columns:
        """Empty columns."""
        return Columns(self.window, self.policy.reserve)

    def empty(self) -> Self:
        """A cache like this one that has nothing yet."""
        return type(self)(self.window, self.policy)

    def start(self, queries: int) -> int:
        """The column of the oldest key that `queries` new tokens will be given."""
        return max(0, self.length - (self.window - 1))

    def counterpart(self) -> Any:
        """mlx-lm's cache of a window."""
        from mlx_lm.models import cache

        return cache.RotatingKVCache(max_size=self.window)


class PaddingCache(Cache):
    """The left padding of rows that are read once, without a cache: it keeps no keys and values."""

    state: tuple[mx.array, ...] = ()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Give the keys and values as they are."""
        return keys, values
