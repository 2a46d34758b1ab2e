"""The columns of keys, or of values, that a cache keeps, in a buffer that grows.

Axes: B batch, G key/value heads, T new, S given back, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

STEP = 256  # columns: the least that a buffer grows by


class Columns:
    """One tensor's columns: all, or the newest `recent` − 1 and those of the pass under way.

    The buffer of all columns doubles when it is full. One with `recent` has a few columns more than that, and slides back
    when it is full: a token copies its own column, and every so often all are copied.
    """

    def __init__(self, recent: int | None = None, reserve: int = 0) -> None:
        self.recent, self.reserve = recent, reserve
        self.slack = 0 if recent is None else max(8, recent // 32)
        self.buffer: mx.array | None = None  # (B, G, room, K)
        self.used = 0  # its columns that are filled, the last with the newest token's

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        return [] if self.buffer is None else [self.buffer]

    def needed(self, length: int) -> int:
        """How many of `length` columns the next token sees."""
        return length if self.recent is None else min(length, self.recent - 1)

    def add(self, new: mx.array, length: int) -> mx.array:
        """Append (B, G, T, K) after `length` columns and give those that the new ones may see, (B, G, S, K)."""
        count, kept = new.shape[2], self.needed(length)
        if self.buffer is None or self.used + count > self.buffer.shape[2]:
            if self.recent is not None and count > self.slack + 1:
                return self._replace(new, kept)
            self._move(new, kept, self._room(kept + count))
        assert self.buffer is not None
        end = self.used + count
        self.buffer[..., self.used : end, :] = new
        self.used = end
        return self.buffer[..., end - count - kept : end, :]

    def _room(self, needed: int) -> int:
        """How many columns a buffer gets that has to hold so many."""
        stepped = -(-max(needed, self.reserve) // STEP) * STEP
        room = max(stepped, 2 * (0 if self.buffer is None else self.buffer.shape[2]))
        return room if self.recent is None else max(needed, min(room, self.recent + self.slack))

    def _move(self, like: mx.array, kept: int, room: int) -> None:
        """Take the last `kept` columns to a new buffer of `room`."""
        batch, heads, _, width = like.shape
        empty = mx.zeros((batch, heads, room - kept, width), dtype=like.dtype)
        last = self.last(kept)
        self.buffer = empty if last is None else mx.concatenate([last, empty], axis=2)
        self.used = kept

    def _replace(self, new: mx.array, kept: int) -> mx.array:
        """Append more columns than the buffer will keep."""
        last = self.last(kept)
        joined = new if last is None else mx.concatenate([last, new], axis=2)
        self.buffer, self.used = joined, joined.shape[2]
        kept = self.needed(self.used)
        self._move(new, kept, self._room(kept))
        return joined

    def last(self, count: int) -> mx.array | None:
        """The newest `count` columns, (B, G, count, K)."""
        return None if self.buffer is None else self.buffer[..., self.used - count : self.used, :]

    def spare(self, length: int) -> int:
        """The numbers of a row that are in reserve after `length` tokens, or that no token sees any more."""
        if self.buffer is None:
            return 0
        heads, room, width = self.buffer.shape[1:]
        held = length if self.recent is None else min(length, self.recent)
        return heads * width * (room - min(held, self.used))

    def select(self, rows: mx.array) -> None:
        """Keep these rows, (B,), in this order."""
        self.buffer = None if self.buffer is None else self.buffer[rows]

    def row(self, row: int, count: int) -> mx.array:
        """The newest `count` columns of one row, (1, G, count, K), apart from the buffer."""
        assert self.buffer is not None
        found = self.buffer[row : row + 1, :, self.used - count : self.used]
        return found * mx.array(1, dtype=found.dtype)  # or it would hold the whole buffer

    def fill(self, array: mx.array) -> None:
        """Hold these columns, (B, G, S, K), and nothing else."""
        self.buffer, self.used = array, array.shape[2]

    def trim(self, count: int) -> None:
        """Forget the newest `count` columns."""
        self.used -= count

    def drop(self, count: int) -> None:
        """Forget the oldest `count`, where all are kept."""
        if self.recent is None and self.buffer is not None:
            self.buffer = mx.contiguous(self.buffer[..., count : self.used, :])
            self.used -= count

    def merge(self, others: Sequence[Columns], lengths: Sequence[int]) -> None:
        """Hold the rows of all `others`, which have so many columns, aligned on the right."""
        kept = [other.needed(length) for other, length in zip(others, lengths, strict=True)]
        most = max(kept)
        found = []
        for other, count in zip(others, kept, strict=True):
            last = other.last(count)
            assert last is not None
            found.append(mx.pad(last, [(0, 0), (0, 0), (most - count, 0), (0, 0)]))
        self.fill(mx.concatenate(found, axis=0))
