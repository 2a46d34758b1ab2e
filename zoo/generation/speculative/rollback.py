"""Rolls the caches of a text back to the accepted tokens of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.cache import Cache


class Rollback:
    """The plain caches of one text (`Model.plain_caches`), before a pass that may be undone in part.

    Caches that can trim drop their last columns. Others (recurrent states, windows) return to their state at the
    checkpoint, and then all caches do, so that they hold the same tokens: the next pass reads the accepted ones again.
    """

    def __init__(self, caches: Sequence[Cache]) -> None:
        self.caches = caches
        self._snapshots: list[Any] = []  # None for a cache that trims

    def checkpoint(self, tokens: int | None = None) -> None:
        """Remember the state of the caches before one pass over so many tokens (None: before several passes)."""
        self._snapshots = []
        for cache in self.caches:
            trims = cache.trims or (tokens is not None and cache.takes_back(tokens))
            self._snapshots.append(None if trims else cache.snapshot())

    def keep(self, accepted: int, read: int) -> int:
        """Keep the first `accepted` of the `read` tokens since the checkpoint; returns how many the caches still hold.

        That is `accepted`, or 0 where a cache could only return to the checkpoint.
        """
        if accepted < read:
            if any(snapshot is not None for snapshot in self._snapshots):
                accepted = 0
            for cache, snapshot in zip(self.caches, self._snapshots, strict=True):
                if snapshot is None:
                    cache.trim(read - accepted)
                else:
                    cache.restore(snapshot)
        self._snapshots = []
        return accepted


def can_roll_back(caches: Sequence[Any]) -> bool:
    """Whether each of a model's plain caches trims or restores."""
    return all(isinstance(cache, Cache) and (cache.trims or cache.restores) for cache in caches)
