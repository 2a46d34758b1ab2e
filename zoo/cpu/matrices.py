"""Products with a few vectors, as columns, and matrices in column-major order, for the decode step.

OpenBLAS and MKL pack a transposed matrix for each product x Wᵀ. For few vectors that takes as long as the product itself.
Axes: B vectors, I inputs, O outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx

from zoo.cpu.blas import blas
from zoo.machine import threads

if TYPE_CHECKING:
    import numpy as np

LARGE_MATRIX = 2**21  # numbers of a matrix that MKL multiplies faster by few vectors as columns
LONG_ROWS = 1024  # numbers of its rows from which on that holds for more than `MOST_BY_SHORT_ROWS` vectors
MOST_BY_SHORT_ROWS = 16
MOST_COLUMNS = 48  # vectors at once that MKL and OpenBLAS multiply faster as columns
LEAST_COLUMN_MAJOR = 2**19  # numbers of a matrix that OpenBLAS multiplies faster in column-major order
LEAST_COLUMN_MAJOR_WIDE = 2**23  # of one with more inputs than outputs
UNHURRIED = (
    256  # tokens, over the rows of a batch, after which matrices are copied: shorter texts would not gain
)
SHARES = 64  # in which they are copied, one share a token
COPIED_ROWS = 128  # at once: their parts of a column are written while these lie in the processor's cache


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


def prefers_column_major(shape: Sequence[int], dtype: mx.Dtype) -> bool:
    """Whether x Wᵀ is faster if the matrix W (O, I) is stored in column-major order.

    For several vectors OpenBLAS packs blocks of the matrix. From column-major order it packs large ones up to twice as fast.
    """
    if len(shape) != 2 or dtype != mx.float32 or blas() != "OpenBLAS":
        return False
    outputs, inputs = shape
    return outputs * inputs >= (LEAST_COLUMN_MAJOR if outputs >= inputs else LEAST_COLUMN_MAJOR_WIDE)


class Movable(Protocol):
    """A matrix of a step, which can be given another array."""

    array: mx.array

    def move(self, array: mx.array) -> None:
        """Use this array, of the same numbers in another order, from now on."""


class Reordering:
    """Copies large matrices of a step to column-major order, a share with each token, once the text is long."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Movable, Callable[[mx.array], None], ColumnMajorCopy]] = deque()
        self._numbers = self._tokens = 0
        self._lock = Lock()

    def add(self, matrix: Movable, replace: Callable[[mx.array], None]) -> None:
        """Copy this matrix if that is worth it. `replace` is called with the copy before the matrix uses it."""
        if prefers_column_major(matrix.array.shape, matrix.array.dtype):
            self.waiting.append((matrix, replace, ColumnMajorCopy(matrix.array)))
            self._numbers += matrix.array.size

    def advance(self, rows: int) -> None:
        """Count a token of each row, and copy a share, unless another thread does."""
        self._tokens += rows
        if not self.waiting or self._tokens <= UNHURRIED or not self._lock.acquire(blocking=False):
            return
        try:
            share = -(-self._numbers // SHARES)
            while share > 0 and self.waiting:
                matrix, replace, copy = self.waiting[0]
                share -= copy.extend(share)
                if (moved := copy.matrix) is None:
                    return
                replace(moved)
                matrix.move(moved)
                self.waiting.popleft()
        finally:
            self._lock.release()


class ColumnMajorCopy:
    """A copy of a matrix (O, I) in column-major order, made piece by piece, several times faster than by MLX.

    The matrix must be evaluated.
    """

    def __init__(self, matrix: mx.array) -> None:
        self._matrix, self._rows = matrix, 0

    @cached_property
    def _memory(self) -> tuple[np.ndarray, np.ndarray, mx.array]:
        """The matrix and the copy, (O, I) each, as numpy sees them, and the transposed copy (I, O)."""
        from zoo.cpu.arithmetic import memory

        copy = mx.zeros(self._matrix.shape[::-1], self._matrix.dtype)
        mx.eval(copy)
        return memory(self._matrix), memory(copy).T, copy

    def extend(self, numbers: int) -> int:
        """Copy at least so many numbers more, if there are so many, in whole rows. Returns how many were copied."""
        source, target, _ = self._memory
        first, (outputs, inputs) = self._rows, source.shape
        last = self._rows = min(first + -(-numbers // inputs), outputs)

        def write(start: int) -> None:
            some = slice(start, min(start + COPIED_ROWS, last))
            target[some] = source[some]

        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(write, range(first, last, COPIED_ROWS)))
        return (last - first) * inputs

    @property
    def matrix(self) -> mx.array | None:
        """The column-major matrix (O, I); None until all of it is copied."""
        if self._rows < self._matrix.shape[0]:
            return None
        moved: Any = self._memory[2].T
        mx.eval(moved)
        return moved  # type: ignore[no-any-return]
