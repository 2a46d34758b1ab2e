"""The columns of keys, or of values, that a cache keeps: in a buffer that grows, each row's first tokens apart.

Axes: B batch, G key/value heads, T new, S given back, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx


class FirstTokens:
    """The vectors of the first `count` tokens of each row, (B, G, count, K); zeros where a token has not come yet.

    They are found by their positions, whatever the row's padding.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.array: mx.array | None = None

    def add(self, new: mx.array, length: int, padding: mx.array | None, most_padding: int) -> None:
        """Take what the new columns (B, G, T, K) after `length` have of the first tokens."""
        if self.array is not None and length - most_padding >= self.count:
            return
        if self.array is None:
            batch, heads, _, width = new.shape
            self.array = mx.zeros((batch, heads, self.count, width), dtype=new.dtype)
        if padding is None:
            end = min(length + new.shape[2], self.count)
            self.array[..., length:end, :] = new[..., : end - length, :]
            return
        column = padding[:, None] + mx.arange(self.count) - length  # (B, count): where each is among the new
        here = (column >= 0) & (column < new.shape[2])
        found = taken(new, mx.clip(column, 0, new.shape[2] - 1))
        self.array = mx.where(here[:, None, :, None], found, self.array)

    def put(self, view: mx.array, start: int, padding: mx.array | None, most_padding: int) -> mx.array:
        """Columns (B, G, S, K) that begin with the column `start`, the first tokens' own vectors in their places."""
        count = min(most_padding + self.count - start, view.shape[2])
        if self.array is None or count <= 0:
            return view
        if padding is None:
            own = self.array[..., start : start + count, :]
        else:
            position = start + mx.arange(count)[None] - padding[:, None]  # (B, count)
            here = (position >= 0) & (position < self.count)
            found = taken(self.array, mx.clip(position, 0, self.count - 1))
            own = mx.where(here[:, None, :, None], found, view[..., :count, :])
        return mx.concatenate([own, view[..., count:, :]], axis=2)


def taken(array: mx.array, columns: mx.array) -> mx.array:  # (B, G, S, K), (B, n) -> (B, G, n, K)
    """Columns of each row by their indices."""
    return mx.take_along_axis(array, columns[:, None, :, None], axis=2)


STEP = 256  # columns: the least that a buffer grows by


class Columns:
    """One tensor's columns: all, or the newest `recent` − 1 and those of the pass under way.

    The buffer of all columns doubles when it is full. One with `recent` has a few columns more than that, and slides back
    when it is full: a token copies its own column, and every so often all are copied.

    `keep`: each row's first tokens are kept, too, and stand before the newest columns when others between were dropped.
    """

    def __init__(self, recent: int | None = None, reserve: int = 0, *, keep: int = 0) -> None:
        self.recent, self.reserve = recent, reserve
        self.slack = 0 if recent is None else max(8, recent // 32)
        self.buffer: mx.array | None = None  # (B, G, room, K)
        self.front = keep  # columns at the head of the buffer where the first tokens find room
        self.used = keep  # its columns that are filled, the last with the newest token's
        self.kept = FirstTokens(keep) if keep else None
        self._all = recent is None and not keep  # every column is kept

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        arrays = (self.buffer, None if self.kept is None else self.kept.array)
        return [array for array in arrays if array is not None]

    def needed(self, length: int) -> int:
        """The number of the newest of `length` columns that the next token sees."""
        return length if self.recent is None else min(length, self.recent - 1)

    def add(
        self, new: mx.array, length: int, padding: mx.array | None = None, most_padding: int = 0
    ) -> mx.array:
        """Append (B, G, T, K) after `length` columns and return those that the new ones may see, (B, G, S, K).

        When columns were dropped, the first are the first `keep` tokens of each row.
        """
        if (
            self._all
            and self.buffer is not None
            and (end := self.used + new.shape[2]) <= self.buffer.shape[2]
        ):
            self.buffer[:, :, self.used : end] = new  # Python's thread takes longer for an ellipsis
            self.used = end
            return self.buffer[:, :, :end]
        if self.kept is not None:
            self.kept.add(new, length, padding, most_padding)
        kept = self.needed(length)
        begin = self._append(new, kept)
        dropped = length - kept
        if self.kept is not None and dropped:
            assert self.buffer is not None
            self.buffer[..., begin - self.front : begin, :] = self.kept.array
            begin -= self.front
        assert self.buffer is not None
        view = self.buffer[..., begin : self.used, :]
        if self.recent is not None and new.shape[2] > self.slack + 1:
            self._move(new, self.needed(length + new.shape[2]))  # what was a long piece is not kept
        return view

    def _append(self, new: mx.array, kept: int) -> int:
        """Write the new columns behind the last `kept`, and return the index of the first of these in the buffer."""
        count = new.shape[2]
        if self.buffer is None or self.used + count > self.buffer.shape[2]:
            self._move(new, kept, count)
        assert self.buffer is not None
        end = self.used + count
        self.buffer[..., self.used : end, :] = new
        self.used = end
        return end - count - kept

    def _move(self, like: mx.array, kept: int, more: int = 0) -> None:
        """Take the last `kept` columns to a new buffer, with room for `more` and those to come."""
        batch, heads, _, width = like.shape
        needed = self.front + kept + more
        stepped = -(-max(needed, self.reserve) // STEP) * STEP
        room = max(stepped, 2 * (0 if self.buffer is None else self.buffer.shape[2]))
        if self.recent is not None:
            room = max(needed, min(room, self.front + self.recent + self.slack))
        last = self.last(kept)
        parts = [mx.zeros((batch, heads, self.front, width), dtype=like.dtype)] * bool(self.front)
        parts += [] if last is None else [last]
        empty = mx.zeros((batch, heads, room - self.front - kept, width), dtype=like.dtype)
        self.buffer, self.used = mx.concatenate([*parts, empty], axis=2), self.front + kept

    def last(self, count: int) -> mx.array | None:
        """The newest `count` columns, (B, G, count, K)."""
        return None if self.buffer is None else self.buffer[..., self.used - count : self.used, :]

    def spare(self, length: int) -> int:
        """The numbers of a row that are in reserve after `length` tokens, or that no token sees any more."""
        if self.buffer is None:
            return 0
        heads, room, width = self.buffer.shape[1:]
        held = length if self.recent is None else min(length, self.recent)
        return heads * width * (room - min(held, self.used - self.front))

    def select(self, rows: mx.array) -> None:
        """Keep these rows, (B,), in this order."""
        self.buffer = None if self.buffer is None else self.buffer[rows]
        if self.kept is not None and self.kept.array is not None:
            self.kept.array = self.kept.array[rows]

    @property
    def count(self) -> int:
        """How many arrays `row` returns."""
        return 1 + (self.kept is not None)

    def row(self, row: int, length: int) -> list[mx.array]:
        """The arrays of one row of `length` tokens: its newest columns (1, G, S, K), and its first tokens."""
        count = self.needed(length)
        found = [self.last(count), None if self.kept is None else self.kept.array]
        # Multiplied by one: a slice would hold the whole buffer.
        return [a[row : row + 1] * mx.array(1, dtype=a.dtype) for a in found if a is not None]

    def fill(self, arrays: Sequence[mx.array]) -> None:
        """Hold the arrays that `row` returned, of one row or of several."""
        newest = arrays[0]
        if self.kept is not None:
            self.kept.array = arrays[1]
        if self.front:
            newest = mx.pad(newest, [(0, 0), (0, 0), (self.front, 0), (0, 0)])
        self.buffer, self.used = newest, newest.shape[2]

    def trim(self, count: int) -> None:
        """Forget the newest `count` columns: any, where all are kept, else those of a last pass without a long piece."""
        self.used -= count

    def drop(self, count: int) -> None:
        """Forget the oldest `count`, where all are kept."""
        if self.recent is None and self.buffer is not None:
            self.buffer = mx.contiguous(self.buffer[..., count : self.used, :])
            self.used -= count

    def join(self, others: Sequence[Columns], lengths: Sequence[int]) -> None:
        """Hold the rows of all `others`, which have so many columns, aligned on the right."""
        kept = [other.needed(length) for other, length in zip(others, lengths, strict=True)]
        most = max(kept)
        newest = []
        for other, count in zip(others, kept, strict=True):
            last = other.last(count)
            assert last is not None
            newest.append(mx.pad(last, [(0, 0), (0, 0), (most - count, 0), (0, 0)]))
        firsts = [other.kept.array for other in others if other.kept is not None]
        groups = [newest] if self.kept is None else [newest, firsts]
        self.fill([mx.concatenate([array for array in group if array is not None]) for group in groups])
