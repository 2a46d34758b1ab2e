"""The states of recurrent mixers. Axes: B batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx

from zoo.cache.base import Cache, Snapshot
from zoo.recipe.policy import CachePolicy


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
        """Count the columns that the arrays have taken in."""
        self.length += tokens

    @property
    def restores(self) -> bool:
        """Whether its snapshots have all that it keeps."""
        return not self.keeps_more

    @property
    def mergeable(self) -> bool:
        """Whether it has taken in a token, every array is there, and there are no others."""
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
        """A cache like this one that has nothing yet."""
        return type(self)(len(self.arrays), self.policy)
