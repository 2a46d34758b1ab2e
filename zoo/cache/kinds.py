"""Caches of keys and values, and the states of recurrent mixers.

Axes: B batch, G key/value heads, T new, S cached, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx

from zoo.cache.base import Cache, Snapshot
from zoo.cache.columns import Columns
from zoo.cache.packed import PackedColumns, attend_packed
from zoo.recipe.policy import CachePolicy


class KVCache(Cache):
    """The keys and values of every token, or of those that the policy keeps, packed where it asks for bits.

    With `max_size`, a query sees the keys of the first `keep` tokens of its row and of the newest `max_size` − `keep`, its
    own included, as if those between had never been; a key keeps the angles of its true position. What a query sees does
    not depend on the pieces in which a text is read. Packed keys and values are the same from the moment they come,
    also for the tokens that come with them.
    """

    handled = frozenset({"_padding", "keys", "values"})
    obeys = frozenset({"max_size", "bits"})
    window: int | None = None

    def __init__(self, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        policy = self.policy
        if policy.bounds(self.window):
            assert policy.recent is not None
            self.bound = policy.keep, policy.recent
        self.recent = self.window if self.bound is None else self.bound[1]
        self.keys, self.values = self.columns(policy.key_bits), self.columns(policy.value_bits)
        own = type(self).update_and_fetch is not KVCache.update_and_fetch
        self.attends_packed = policy.quantizes and not policy.start and not own

    def columns(self, bits: int | None) -> Columns | PackedColumns:
        """Empty columns, packed in `bits`."""
        keep = self.bound[0] if self.bound else 0
        if bits is None:
            return Columns(self.recent, self.policy.reserve, keep=keep)
        return PackedColumns(bits, self.policy, self.recent, keep)

    @property
    def kind(self) -> str:
        """The class name, with the settings of the policy that change its arrays."""
        policy, name = self.policy, type(self).__name__
        parts = [] if self.window is None else [f"window={self.window}"]
        if self.bound:
            parts.append(f"keep={self.bound[0]} recent={self.bound[1]}")
        if policy.quantizes:
            bits = f"{policy.key_bits}/{policy.value_bits}"
            parts.append(f"bits={bits} group={policy.group_size} start={policy.start}")
        return f"{name}({' '.join(parts)})" if parts else name

    @property
    def by_column(self) -> bool:  # type: ignore[override]
        """Whether the cache holds one column a token, and nothing else."""
        return self.recent is None and not (self.policy.quantizes and self.policy.start)

    @property
    def trims(self) -> bool:  # type: ignore[override]
        """Whether every token is kept."""
        return self.recent is None

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [*self.keys.state, *self.values.state]

    @property
    def spare(self) -> int:
        """Numbers of one row in columns that are not filled yet or no longer attended to."""
        return self.keys.spare(self.length) + self.values.spare(self.length)

    def start(self, queries: int) -> int:
        return 0 if self.recent is None else max(0, self.length - (self.recent - 1))

    def key_positions(self, queries: int) -> int | mx.array:
        """The positions of the keys for the next `queries` tokens: the first position, or all of them, (B, S)."""
        start = self.start(queries)
        if self.bound is None or not start:
            return super().key_positions(queries)
        padding = mx.array([0]) if self.padding is None else self.padding
        newest = mx.arange(start, self.length + queries)[None] - padding[:, None]  # (B, S − keep)
        kept = mx.broadcast_to(mx.arange(self.bound[0])[None], (newest.shape[0], self.bound[0]))
        return mx.concatenate([kept, newest], axis=1)

    def counterpart(self) -> Any:
        """mlx-lm's growing cache."""
        from mlx_lm.models import cache

        return cache.KVCache()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append (B, G, T, K) and return all columns that the new tokens may see, (B, G, S, K).

        After the first `keep` tokens, where columns were dropped, they are in order up to the newest.
        """
        before = self._advance(keys.shape[2])
        return self.keys.add(keys, *before), self.values.add(values, *before)

    def attend(
        self, queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | str | None
    ) -> mx.array:
        """Append one token's, two of (B, G, 1, K), and mix what it may see: softmax(Q Kᵀ · scale + mask) V, (B, H, 1, K).

        Where it `attends_packed`: as after `update_and_fetch`, but nothing is dequantized.
        """
        before = self._advance(1)
        packed_keys, packed_values = (
            columns.add_packed(new, *before)
            if isinstance(columns, PackedColumns)
            else columns.add(new, *before)
            for columns, new in ((self.keys, keys), (self.values, values))
        )
        return attend_packed(queries, packed_keys, packed_values, scale, mask)

    def _advance(self, tokens: int) -> tuple[int] | tuple[int, mx.array, int]:
        """Count new tokens; returns the columns before, and the padding, as `Columns.add` takes them."""
        before, self.length = self.length, self.length + tokens
        return (before,) if self._padding is None else (before, self._padding, self.most_padding)

    @property
    def mergeable(self) -> bool:
        """Whether it holds a token, and nothing but keys and values."""
        return self.length > 0 and not self.keeps_more

    def select(self, rows: mx.array) -> None:
        super().select(rows)
        self.keys.select(rows)
        self.values.select(rows)

    def snapshot(self, row: int = 0) -> Snapshot:
        """A snapshot of one row: keys and values (1, G, S, K), as they are kept."""
        length = self.length - (0 if self.padding is None else int(self.padding[row].item()))
        arrays = (*self.keys.row(row, length), *self.values.row(row, length)) if length else ()
        mx.eval(arrays)
        return Snapshot(self.kind, length, arrays, self.by_column)

    def restore(self, snapshot: Snapshot) -> None:
        policy = self.policy
        self.keys, self.values = self.columns(policy.key_bits), self.columns(policy.value_bits)
        if snapshot.arrays:
            count = self.keys.count
            self.keys.fill(snapshot.arrays[:count])
            self.values.fill(snapshot.arrays[count:])
        self.length, self.padding = snapshot.length, None

    def trim(self, count: int) -> None:
        """Forget the last `count` columns."""
        self.keys.trim(count)
        self.values.trim(count)
        self.length -= count

    def takes_back(self, tokens: int) -> bool:
        """Whether the columns of the previous pass remain after a pass over so many tokens."""
        return self.trims or tokens <= self.keys.slack + 1

    @classmethod
    def joined(cls, caches: Sequence[Self]) -> Self:
        made, lengths = caches[0].empty(), [cache.length for cache in caches]
        for own, others in ((made.keys, [c.keys for c in caches]), (made.values, [c.values for c in caches])):
            own.join(others, lengths)  # type: ignore[arg-type]  # all are of one kind: they have one policy
        return made

    def empty(self) -> Self:
        """An empty cache of the same kind."""
        return type(self)(self.policy)

    def drop_columns(self, count: int) -> None:
        self.keys.drop(count)
        self.values.drop(count)


class WindowCache(KVCache):
    """The keys and values of a sliding window: the last `window` − 1, and those of the step under way.

    A policy's `max_size` changes it where the window is larger.
    """

    def __init__(self, window: int, policy: CachePolicy | None = None) -> None:
        self.window = window
        super().__init__(policy)

    def empty(self) -> Self:
        assert self.window is not None
        return type(self)(self.window, self.policy)

    def counterpart(self) -> Any:
        """mlx-lm's cache of a window."""
        from mlx_lm.models import cache

        return cache.RotatingKVCache(max_size=self.window)


class PaddingCache(Cache):
    """The left padding of rows that are read once, without a cache: it keeps no keys and values."""

    state: tuple[mx.array, ...] = ()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the keys and values as they are."""
        return keys, values


class StateCache(Cache):
    """The state of a recurrent mixer: arrays that do not grow, whatever the length of the text.

    `cache[i]` is the array i, None before the first token. The mixer writes it and then calls `advance`.
    """

    constant = True
    handled = frozenset({"_padding", "arrays"})

    def __init__(self, count: int, policy: CachePolicy | None = None) -> None:
        super().__init__(policy)
        self.arrays: list[mx.array | None] = [None] * count

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [array for array in self.arrays if array is not None]

    def counterpart(self) -> Any:
        """mlx-lm's cache of as many arrays."""
        from mlx_lm.models import cache

        return cache.ArraysCache(len(self.arrays))

    def __getitem__(self, index: int) -> mx.array | None:
        return self.arrays[index]

    def __setitem__(self, index: int, array: mx.array) -> None:
        self.arrays[index] = array

    def advance(self, tokens: int) -> None:
        """Count the columns that the arrays now include."""
        self.length += tokens

    @property
    def mergeable(self) -> bool:
        """Whether it includes a token, and holds exactly its arrays."""
        return self.length > 0 and len(self.state) == len(self.arrays) and not self.keeps_more

    def snapshot(self, row: int = 0) -> Snapshot:
        """The arrays of one row (1, …)."""
        length = self.length - (0 if self.padding is None else int(self.padding[row].item()))
        arrays = tuple(array[row : row + 1] * mx.array(1, dtype=array.dtype) for array in self.state)
        mx.eval(arrays)
        return Snapshot(self.kind, length, arrays)

    def restore(self, snapshot: Snapshot) -> None:
        self.arrays = list(snapshot.arrays) or [None] * len(self.arrays)
        self.length, self.padding = snapshot.length, None

    @classmethod
    def joined(cls, caches: Sequence[Self]) -> Self:
        made = caches[0].empty()
        made.arrays = [
            mx.concatenate(list(arrays)) for arrays in zip(*(c.state for c in caches), strict=True)
        ]
        return made

    def empty(self) -> Self:
        """An empty cache of the same kind."""
        return type(self)(len(self.arrays), self.policy)
