"""Operations of a compiled step, which has one token a row, in the fastest way of this device.

Axes: B rows, H heads, G key/value heads, S keys, K width of a head, D width, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from zoo.runtime.device import cpu_uses

Function = Callable[..., Any]


def rms_norm(weight: mx.array, eps: float) -> Function:
    """(…, D) -> (…, D) in the dtype of the weight, which may be one for all vectors, or have more axes."""
    dtype, one = weight.dtype, weight.ndim == 1
    mx.eval(weight)
    if dtype == mx.float32 and cpu_uses("few-operations"):
        from zoo.cpu.few_operations import step_rms_norm

        return step_rms_norm(weight, eps)
    norm = mx.fast.rms_norm
    if one:
        return lambda x: norm(x, weight, eps).astype(dtype)
    return lambda x: (norm(x, None, eps) * weight).astype(dtype)


def layer_norm(weight: mx.array, bias: mx.array | None, eps: float) -> Function:
    """(…, D) -> (…, D)."""
    mx.eval(weight, bias)
    if weight.dtype == mx.float32 and cpu_uses("few-operations"):
        from zoo.cpu.few_operations import step_layer_norm

        return step_layer_norm(weight, bias, eps)
    return lambda x: mx.fast.layer_norm(x, weight, bias, eps)


def attention(scale: float, heads: int, width: int) -> Function:
    """softmax(Q Kᵀ · scale + mask) V: (B, H, 1, K), two of (B, G, S, K), mask -> an array of as many numbers as the queries."""
    if cpu_uses("few-operations"):
        from zoo.cpu.few_operations import step_attention

        return step_attention(scale, heads, width)
    attend = mx.fast.scaled_dot_product_attention
    return lambda queries, keys, values, mask: attend(queries, keys, values, scale=scale, mask=mask)


def rotation(frequencies: Callable[[], Sequence[float]]) -> Function | None:
    """(B, H, 1, K), the position of each row -> (B, H, 1, K), where that is faster than by `mx.fast.rope`; else None.

    Pair k is (k, k + K/2). `frequencies` gives the K/2 radians a position. Layers that share the function compute the angles once.
    """
    if not cpu_uses("few-operations"):
        return None
    from zoo.cpu.few_operations import Rotation

    return Rotation(frequencies())


class Matrix:
    """A matrix (O, I) by which a step multiplies vectors."""

    def __init__(self, array: mx.array, by_columns: Callable[..., mx.array | None] | None) -> None:
        """`by_columns` multiplies (array, x, bias, residual) in another way, or returns None."""
        self.move(array)
        self._by_columns = by_columns

    def move(self, array: mx.array) -> None:
        """Use this array, of the same numbers in another order, from now on."""
        self.array, self.transposed, self._by_columns = array, array.T, None
        mx.eval(self.transposed)  # once, and by this thread: a step has no transposition of its own

    def multiply(
        self, x: mx.array, bias: mx.array | None = None, residual: mx.array | None = None
    ) -> mx.array:  # (B, I), (O,), (B, O) -> (B, O)
        """x Wᵀ + b, or plus a residual in the place of b."""
        if self._by_columns and (y := self._by_columns(self.array, x, bias, residual)) is not None:
            return y
        added = bias if residual is None else residual
        return x @ self.transposed if added is None else mx.addmm(added, x, self.transposed)


class Matrices:
    """The matrices of a step. A device may multiply by them, or lay them out, in a way of its own."""

    def __init__(self) -> None:
        self._by_columns: Callable[..., mx.array | None] | None = None
        self._reordering = None
        if cpu_uses("columns"):
            from zoo.cpu.matrices import multiply_columns

            self._by_columns = multiply_columns
        if cpu_uses("column-major"):
            from zoo.cpu.matrices import Reordering

            self._reordering = Reordering()

    def add(self, array: mx.array, replace: Callable[[mx.array], None] | None = None) -> Matrix:
        """A matrix of the step. `replace` puts a copy of it with another layout in its place; None where it has to stay."""
        matrix = Matrix(array, self._by_columns)
        if replace is not None and self._reordering is not None:
            self._reordering.add(matrix, replace)
        return matrix

    def advance(self, rows: int) -> None:
        """Called with each token of so many rows: work that is done a little at a time."""
        if self._reordering is not None:
            self._reordering.advance(rows)


def joins_matrix(shape: Sequence[int], dtype: mx.Dtype) -> bool:
    """Whether a matrix (O, I) is multiplied faster joined with others of the same inputs."""
    if not cpu_uses("column-major"):
        return True
    from zoo.cpu.matrices import prefers_column_major

    return not prefers_column_major(shape, dtype)
