"""Values summarised for pictures. Axes: T tokens, S attended tokens, H heads, k experts of a token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zoo.inspect.trace_view.view import HeadAttention, Numbers, Rows, Strip

BINS = 64  # of the residual stream
FEWER = 32  # of other values
MOST_ROWS = 128


def rounded(values: np.ndarray, digits: int = 4) -> Numbers:
    """A vector rounded to significant digits; infinities and NaN become 0."""
    return tuple(float(f"{x:.{digits}g}") if np.isfinite(x) else 0.0 for x in values.tolist())


def strip(value: np.ndarray, axes: Sequence[str], bins: int) -> Strip:
    """A value as rows of at most `bins` means, one row a token if it has such an axis; at most the last 128 rows."""
    rows = as_rows(value, axes)
    first = max(len(rows) - MOST_ROWS, 0)
    rows = rows[first:].astype(np.float64)
    width = rows.shape[1]
    size = max(-(-width // bins), 1)
    starts = np.arange(0, width, size)
    counts = np.minimum(starts + size, width) - starts
    means = np.add.reduceat(rows, starts, axis=1) / counts
    return Strip(size, first, tuple(rounded(row, 3) for row in means))


def as_rows(value: np.ndarray, axes: Sequence[str]) -> np.ndarray:
    """A value as a matrix with one row a token: along T, else S, else its first axis."""
    value = np.atleast_1d(value)
    named = [name for name in ("T", "S") if name in axes and axes.index(name) < value.ndim]
    along = axes.index(named[0]) if named else (0 if value.ndim > 1 else None)
    if along is None:
        return value[None]
    return np.moveaxis(value, along, 0).reshape(value.shape[along], -1)


def mean_norm(value: np.ndarray, axes: Sequence[str]) -> float | None:
    """The mean L2 norm over tokens; None for integers, which are counts or indices."""
    if not np.issubdtype(value.dtype, np.floating) or not value.size:
        return None
    return rounded(np.linalg.norm(as_rows(value, axes), axis=1).mean()[None], 6)[0]


def head_attention(weights: np.ndarray, first_row: int, across: bool) -> HeadAttention:  # (T, S)
    """One head of a pattern with its rows from `first_row` on; with `across`, its columns are the source's tokens."""
    share = np.where(weights > 0, weights, 1)
    entropy = -(share * np.log2(share)).sum(axis=1)
    index = np.arange(weights.shape[0])
    own = np.zeros(1) if across else weights[index, index]
    before = np.zeros(1) if across or len(index) < 2 else weights[index[1:], index[:-1]]
    rows: Rows = tuple(
        tuple(float(x) if x else 0 for x in row) for row in np.round(weights[first_row:], 3).tolist()
    )
    return HeadAttention(
        rows,
        tuple(weights[first_row:].argmax(axis=1).tolist()),
        rounded(np.abs(entropy[first_row:]), 4),
        *(round(float(mean), 4) for mean in (weights[:, 0].mean(), before.mean(), own.mean())),
    )
