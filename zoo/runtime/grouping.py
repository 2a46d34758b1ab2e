"""Products of rows with stacked matrices, one for all rows of a matrix. Axes: N rows, E matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import mlx.core as mx

Groups = Sequence[tuple[slice, slice]]  # parts of the stack, and the rows that each multiplies


def groups(indices: mx.array) -> Groups:  # (N,)
    """Of ascending indices, which are computed already, each number and the rows that have it."""
    found: list[tuple[slice, slice]] = []
    start = 0
    for number, rows in groupby(indices.tolist()):  # type: ignore[arg-type]
        stop = start + sum(1 for _ in rows)
        found.append((slice(number, number + 1), slice(start, stop)))
        start = stop
    return found


def grouped_product(
    x: mx.array, matrices: Callable[[slice], mx.array], groups: Groups
) -> mx.array:  # (N, 1, in), the matrices of a part (1, in, out) -> (N, 1, out)
    """Each row times the matrix of its group, in float32; the result has the dtype of `x`."""
    wide = x.astype(mx.float32).swapaxes(0, 1)  # (1, N, in)
    parts = [wide[:, rows] @ matrices(part).astype(mx.float32) for part, rows in groups]
    return mx.concatenate(parts, axis=1).swapaxes(0, 1).astype(x.dtype)
