"""Caches that go back: to what was accepted of a pass, whatever kind they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.cache import Snapshot


class Rollback:
    """The plain caches of one text (`Model.plain_caches`), before a pass that may be taken back in part.

    Caches that trim drop their last columns. Others (recurrent states, windows past their size, bounded caches) are put
    back as they were at the mark, and what was accepted since is read again with the next pass: then all go back there,
    so that they hold the same tokens.
    """

    def __init__(self, caches: Sequence[Any]) -> None:
        self.leaves = list(caches)
        self._snapshots: list[Snapshot | None] = []

    def mark(self) -> None:
        """Remember the state of the caches as it is now."""
        self._snapshots = [None if leaf.trims else leaf.snapshot() for leaf in self.leaves]

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
