"""Packed keys and values: columns of words, scales and biases, and the attention of one token that multiplies them.

Axes: B batch, H heads, G key/value heads, T new, S cached columns, K width of a head, W words of 32 bits, N groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx

from zoo.cache.columns import Columns, FirstTokens
from zoo.errors import PromptError
from zoo.recipe.policy import CachePolicy


class PackedVectors(NamedTuple):
    """Vectors as groups of `bits` bits with a scale and a bias each, which have the vectors' own dtype.

    x ≈ scale · q + bias for the numbers of a group, q a whole number of `bits` bits (`mx.quantize`, mode "affine").
    """

    words: mx.array  # (B, G, S, W)
    scales: mx.array  # (B, G, S, N)
    biases: mx.array  # (B, G, S, N)
    group_size: int
    bits: int

    def dequantize(self) -> mx.array:
        """The numbers that are left of those that were packed, (B, G, S, K)."""
        return mx.dequantize(*self[:3], group_size=self.group_size, bits=self.bits)

    def multiply(self, x: mx.array, transpose: bool) -> mx.array:
        """x times the vectors, (B, G, R, S) -> (B, G, R, K), or times their transpose, (B, G, R, K) -> (B, G, R, S)."""
        how = {"group_size": self.group_size, "bits": self.bits}
        return mx.quantized_matmul(x, *self[:3], transpose=transpose, **how)


class PackedColumns:
    """One tensor's columns as `PackedVectors`, whose arrays are `Columns` each; what those do, it does for all three.

    The first `policy.start` tokens are kept as they came, too.
    """

    def __init__(self, bits: int, policy: CachePolicy, recent: int | None = None, keep: int = 0) -> None:
        self.bits, self.policy = bits, policy
        self.parts = [Columns(recent, policy.reserve, keep=keep) for _ in range(3)]
        self.exact = FirstTokens(policy.start) if policy.start else None

    @property
    def slack(self) -> int:
        """The columns beyond the newest that are kept until the buffer is full."""
        return self.parts[0].slack

    @property
    def state(self) -> list[mx.array]:
        """The arrays to evaluate."""
        exact = [] if self.exact is None or self.exact.array is None else [self.exact.array]
        return [array for part in self.parts for array in part.state] + exact

    def add(
        self, new: mx.array, length: int, padding: mx.array | None = None, most_padding: int = 0
    ) -> mx.array:
        """As `Columns.add`, dequantized: (B, G, T, K) -> (B, G, S, K)."""
        if self.exact is not None:
            self.exact.add(new, length, padding, most_padding)
        view = self.add_packed(new, length, padding, most_padding).dequantize()
        return view if self.exact is None else self._put_exact(view, length, padding, most_padding)

    def add_packed(
        self, new: mx.array, length: int, padding: mx.array | None = None, most_padding: int = 0
    ) -> PackedVectors:
        """As `Columns.add`, but for the first tokens as they came. PromptError if no group size divides the width."""
        group = self.policy.group(new.shape[-1])
        if group is None:
            raise PromptError(
                f"`kv_bits`: vectors of {new.shape[-1]} numbers are no groups of 32, 64 or 128 that share a scale"
            )
        arrays = mx.quantize(new, group_size=group, bits=self.bits)
        views = [
            part.add(array, length, padding, most_padding)
            for part, array in zip(self.parts, arrays, strict=True)
        ]
        words, scales, biases = views
        return PackedVectors(words, scales, biases, group, self.bits)

    def _put_exact(
        self, view: mx.array, length: int, padding: mx.array | None, most_padding: int
    ) -> mx.array:  # (B, G, S, K)
        """The columns with the first tokens as they came."""
        assert self.exact is not None and self.exact.array is not None
        columns = self.parts[0]
        dropped = length - columns.needed(length)
        if columns.kept is None or not dropped:
            return self.exact.put(view, dropped, padding, most_padding)
        front, shared = columns.front, min(columns.front, self.exact.count)
        first = [self.exact.array[..., :shared, :], view[..., shared:front, :]]
        newest = self.exact.put(view[..., front:, :], dropped, padding, most_padding)
        return mx.concatenate([*first, newest], axis=2)

    def spare(self, length: int) -> int:
        """The numbers of a row that are in reserve after `length` tokens, or that no token sees any more."""
        return sum(part.spare(length) for part in self.parts)

    def select(self, rows: mx.array) -> None:
        """Keep these rows, (B,), in this order."""
        for part in self.parts:
            part.select(rows)
        if self.exact is not None and self.exact.array is not None:
            self.exact.array = self.exact.array[rows]

    @property
    def count(self) -> int:
        """How many arrays `row` returns."""
        return sum(part.count for part in self.parts) + (self.exact is not None)

    def row(self, row: int, length: int) -> list[mx.array]:
        """The arrays of one row of `length` tokens: those of words, of scales and of biases, and its first tokens."""
        exact = [] if self.exact is None or self.exact.array is None else [self.exact.array]
        return [array for part in self.parts for array in part.row(row, length)] + [
            array[row : row + 1] * mx.array(1, dtype=array.dtype) for array in exact
        ]

    def fill(self, arrays: Sequence[mx.array]) -> None:
        """Hold the arrays that `row` returned, of one row or of several."""
        count = self.parts[0].count
        for number, part in enumerate(self.parts):
            part.fill(arrays[number * count : (number + 1) * count])
        if self.exact is not None:
            self.exact.array = arrays[-1]

    def trim(self, count: int) -> None:
        """Forget the newest `count` columns."""
        for part in self.parts:
            part.trim(count)

    def drop(self, count: int) -> None:
        """Forget the oldest `count`, where all are kept."""
        for part in self.parts:
            part.drop(count)

    def join(self, others: Sequence[PackedColumns], lengths: Sequence[int]) -> None:
        """Hold the rows of all `others`, which have so many columns, aligned on the right."""
        for number, part in enumerate(self.parts):
            part.join([other.parts[number] for other in others], lengths)
        if self.exact is not None:
            firsts = [other.exact.array for other in others if other.exact is not None]
            self.exact.array = mx.concatenate([array for array in firsts if array is not None])


def attend_packed(
    queries: mx.array,
    keys: mx.array | PackedVectors,
    values: mx.array | PackedVectors,
    scale: float,
    mask: mx.array | str | None,
) -> mx.array:
    """softmax(Q Kᵀ · scale + mask) V for one token: (B, H, 1, K), two of (B, G, S, K) -> (B, H, 1, K).

    The H/G queries that share keys are the rows of one product. `mask` is any that `zoo.runtime.attention` takes.
    """
    batch, heads, _, width = queries.shape
    groups = (keys.words if isinstance(keys, PackedVectors) else keys).shape[1]
    rows = (queries * scale).reshape(batch, groups, heads // groups, width)  # (B, G, H/G, K)
    if isinstance(keys, PackedVectors):
        scores = keys.multiply(rows, transpose=True)  # (B, G, H/G, S)
    else:
        scores = rows @ keys.swapaxes(-1, -2)
    if mask is not None and not isinstance(mask, str):  # one token sees all that is causal
        of_heads = mask.ndim == 4 and mask.shape[1] == heads
        seen = mask.reshape(-1, groups, heads // groups, mask.shape[-1]) if of_heads else mask
        least = mx.finfo(scores.dtype).min
        scores = mx.where(seen, scores, least) if seen.dtype == mx.bool_ else scores + seen
    weights = mx.softmax(scores, axis=-1, precise=True)
    mixed = (
        values.multiply(weights, transpose=False) if isinstance(values, PackedVectors) else weights @ values
    )
    return mixed.reshape(batch, heads, 1, -1)
