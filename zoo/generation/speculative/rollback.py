"""Caches that go back: to what was accepted of a pass, whatever kind they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class RollbackCache(Protocol):
    """What `Rollback` asks of a plain cache: the part of `zoo.cache.Cache` that takes tokens back."""

    trims: bool
    restores: bool

    def takes_back(self, tokens: int) -> bool:
        """Whether `trim` can drop any of a pass over so many tokens, right after it."""

    def trim(self, count: int) -> None:
        """Forget the last `count` tokens."""

    def snapshot(self) -> Any:
        """What it holds; where it `restores`."""

    def restore(self, snapshot: Any) -> None:
        """Become what the snapshot was taken of."""


class Rollback:
    """The plain caches of one text (`Model.plain_caches`), before a pass that may be taken back in part.

    Caches that can drop their last columns do. Others (recurrent states, bounded caches) are put
    back as they were at the mark, and what was accepted since is read again with the next pass: then all go back there,
    so that they hold the same tokens.
    """

    def __init__(self, caches: Sequence[RollbackCache]) -> None:
        self.leaves = list(caches)
        self._snapshots: list[Any] = []

    def mark(self, tokens: int | None = None) -> None:
        """Remember the state of the caches as it is now, before one pass over so many tokens (None: before several)."""
        self._snapshots = [None if self._trims(leaf, tokens) else leaf.snapshot() for leaf in self.leaves]

    @staticmethod
    def _trims(leaf: RollbackCache, tokens: int | None) -> bool:
        """Whether a cache can drop what comes."""
        return leaf.trims or (tokens is not None and leaf.takes_back(tokens))

    def back(self, read: int, kept: int) -> int:
        """Keep the first `kept` of the `read` tokens that were read since the mark; how many of them the caches hold.

        That is `kept`, or 0 where a cache could only go back to the mark.
        """
        if kept < read:
            if any(snapshot is not None for snapshot in self._snapshots):
                kept = 0
            for leaf, snapshot in zip(self.leaves, self._snapshots, strict=True):
                if snapshot is None:
                    leaf.trim(read - kept)
                else:
                    leaf.restore(snapshot)
        self._snapshots = []
        return kept


def can_roll_back(caches: Sequence[Any]) -> bool:
    """Whether each of a model's plain caches trims or restores."""
    return all(isinstance(cache, RollbackCache) and (cache.trims or cache.restores) for cache in caches)
