"""Products with a few vectors, as columns, for the decode step.

OpenBLAS and MKL pack a transposed matrix for each product x Wᵀ. For few vectors that takes as long as the product itself.
Axes: B vectors, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from zoo.cpu.blas import blas

LARGE_MATRIX = 2**21  # numbers of a matrix that MKL multiplies faster by few vectors as columns
LONG_ROWS = 1024  # numbers of its rows from which on that holds for more than `MOST_BY_SHORT_ROWS` vectors
MOST_BY_SHORT_ROWS = 16
MOST_COLUMNS = 48  # vectors at once that MKL and OpenBLAS multiply faster as columns


def prefers_columns(rows: int, shape: Sequence[int]) -> bool:
    """Whether so many vectors, as columns, are multiplied faster by a matrix W (O, I): W xᵀ rather than x Wᵀ.

    MKL has fast kernels for up to three vectors as rows, and gains with large matrices alone.
    """
    if rows == 1 or rows > MOST_COLUMNS:
        return False
    library, (outputs, inputs) = blas(), shape
    if library == "MKL":
        large = outputs * inputs >= LARGE_MATRIX and (rows <= MOST_BY_SHORT_ROWS or inputs >= LONG_ROWS)
        return rows > 3 and large
    return library == "OpenBLAS"


def multiply_columns(
    matrix: mx.array, x: mx.array, bias: mx.array | None, residual: mx.array | None
) -> mx.array | None:  # (O, I), (B, I), (O,), (B, O) -> (B, O)
    """(W xᵀ + b)ᵀ plus the residual; None where the vectors are multiplied faster as rows."""
    if x.ndim != 2 or not prefers_columns(x.shape[0], matrix.shape):
        return None
    y = matrix @ x.T if bias is None else mx.addmm(bias[:, None], matrix, x.T)  # (O, B)
    return y.T if residual is None else residual + y.T
