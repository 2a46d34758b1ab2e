"""The first tokens of each row, by their positions, whatever the row's padding.

Axes: B batch, G key/value heads, T new columns, K width.
"""

from __future__ import annotations

import mlx.core as mx


class FirstTokens:
    """The vectors of the first `count` tokens of each row, (B, G, count, K); zeros where a token has not come yet."""

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
