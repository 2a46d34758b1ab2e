"""Joins the values of several passes into one array.

Axes: T tokens of a pass, S columns of a cache that the pass sees, its own tokens included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def join_rows(
    rows: Sequence[np.ndarray], axes: Sequence[str], tokens: Sequence[tuple[int, int]]
) -> np.ndarray:
    """The rows of all passes along the axis T, and their columns along the axis S, each at its position in the text.

    `tokens` has the position of each pass's first token, and the number of its tokens. Columns that a pass does not see
    are zero: those of later tokens, and those before its window. Without T, a column has the value of the last pass that
    saw it. If `axes` is empty, T is the axis whose length is the number of tokens in each pass. Without any of these axes
    the value is that of the last pass.
    """
    along = _tokens_axis(rows, axes, tokens)
    if "S" in axes:
        rows = _aligned(rows, axes.index("S"), tokens, apart=along is not None)
    return rows[-1] if along is None else np.concatenate(rows, axis=along)


def _tokens_axis(
    rows: Sequence[np.ndarray], axes: Sequence[str], tokens: Sequence[tuple[int, int]]
) -> int | None:
    if axes:
        return axes.index("T") if "T" in axes else None
    each = list(zip(rows, tokens, strict=True))
    known = min(row.ndim for row in rows)
    fitting = (
        axis
        for axis in range(known)
        if all(row.ndim == known and row.shape[axis] == count for row, (_, count) in each)
    )
    return next(fitting, None)


def _aligned(
    rows: Sequence[np.ndarray], axis: int, tokens: Sequence[tuple[int, int]], apart: bool
) -> list[np.ndarray]:
    """The rows with all columns of the text; with `apart`, each has only the columns of its own pass."""
    # A pass sees the columns that end with its last token; a value of another kind begins at the first.
    starts = [
        max(0, start + count - row.shape[axis]) for row, (start, count) in zip(rows, tokens, strict=True)
    ]
    width = max(start + row.shape[axis] for row, start in zip(rows, starts, strict=True))
    found: list[np.ndarray] = []
    for row, start in zip(rows, starts, strict=True):
        shape = [width if i == axis else n for i, n in enumerate(row.shape)]
        whole = np.zeros(shape, row.dtype) if apart or not found else found[-1].copy()
        whole[(slice(None),) * axis + (slice(start, start + row.shape[axis]),)] = row
        found.append(whole)
    return found
