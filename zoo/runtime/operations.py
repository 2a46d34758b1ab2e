"""Operations of blocks in the fastest way of this device.

On a GPU these are MLX's own. On the CPU some of them are computed by numpy, by rows of an expert (both in
`zoo.runtime.arithmetic`) or on several cores, where that has been measured to be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import mlx.core as mx

from zoo.machine import blas
from zoo.runtime import device

if TYPE_CHECKING:
    from zoo.runtime.arithmetic import ColumnMajorCopy

MANY_NUMBERS = 2**16  # whose exp takes the CPU longer than it takes to call numpy's
LARGE_MATRIX = 2**21  # numbers of a matrix that MKL multiplies faster by few vectors as columns
LONG_ROWS = 1024  # numbers of its rows from which on that holds for more than `MOST_BY_SHORT_ROWS` vectors
MOST_BY_SHORT_ROWS = 16
LEAST_COLUMN_MAJOR = 2**19  # numbers of a matrix that OpenBLAS multiplies faster in column-major order
LEAST_COLUMN_MAJOR_WIDE = 2**23  # of one with more inputs than outputs
MOST_COLUMNS = 48  # vectors at once that MKL and OpenBLAS multiply faster as columns
LEAST_DIVIDED = 2**15  # words of packed numbers from which on a product is divided among cores


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one kernel on a GPU; unchanged on the CPU, where MLX would call a C++ compiler."""
    if not device.on_gpu():
        return function
    compiled = mx.compile(function, shapeless=True)
    # `copy.deepcopy` of a module copies a Python function, but fails on the object that `mx.compile` returns.
    return lambda *arrays: compiled(*arrays)


def elementwise(function: Callable[[mx.array], mx.array], name: str) -> Callable[[mx.array], mx.array]:
    """An activation as one kernel on a GPU; on the CPU inside `eager()`, for many numbers, numpy's of that name."""
    if device.on_gpu():
        return fused(function)

    def either(x: mx.array) -> mx.array:
        if x.size < MANY_NUMBERS or x.dtype != mx.float32 or not evaluates(x):
            return function(x)
        from zoo.runtime import arithmetic

        form = arithmetic.ACTIVATIONS.get(name)
        return arithmetic.in_pieces(form, x) if form else function(x)

    return either


def prefers_columns(rows: int, shape: Sequence[int]) -> bool:
    """Whether so many vectors, as columns, are multiplied faster by a matrix W (O, I): W xᵀ rather than x Wᵀ.

    Both libraries pack a transposed matrix for each product. For few vectors that takes as long as the product. MKL has fast
    kernels for up to three vectors as rows, and gains with large matrices alone.
    """
    library, (outputs, inputs) = blas(), shape
    if rows == 1 or rows > MOST_COLUMNS or device.on_gpu():
        return False
    if library == "MKL":
        large = outputs * inputs >= LARGE_MATRIX and (rows <= MOST_BY_SHORT_ROWS or inputs >= LONG_ROWS)
        return rows > 3 and large
    return library == "OpenBLAS"


def prefers_column_major(shape: Sequence[int], dtype: mx.Dtype) -> bool:
    """Whether x Wᵀ is faster if the matrix W (O, I) is stored in column-major order.

    For several vectors OpenBLAS packs blocks of the matrix. From column-major order it packs large ones up to twice as fast.
    """
    if len(shape) != 2 or dtype != mx.float32 or device.on_gpu() or blas() != "OpenBLAS":
        return False
    outputs, inputs = shape
    return outputs * inputs >= (LEAST_COLUMN_MAJOR if outputs >= inputs else LEAST_COLUMN_MAJOR_WIDE)


def column_major_copy(matrix: mx.array) -> ColumnMajorCopy:  # (O, I)
    """Begin a copy of a matrix in column-major order. The method `extend` of the result makes it piece by piece."""
    from zoo.runtime.arithmetic import ColumnMajorCopy

    return ColumnMajorCopy(matrix)


class QuantizeArguments(TypedDict):
    """How numbers are packed, as MLX's functions take it."""

    group_size: int | None
    bits: int | None
    mode: str


def quantized_matmul(
    weight: mx.array, scales: mx.array, biases: mx.array | None, how: QuantizeArguments
) -> Callable[[mx.array], mx.array]:
    """x -> x times the transposed matrix (O, I) of packed numbers: (…, I) -> (…, O).

    The CPU backend multiplies packed numbers on one core: the outputs are divided among the side streams there.
    """
    streams = device.side_streams()
    if len(streams) == 1 or weight.ndim != 2 or weight.size < LEAST_DIVIDED:
        return lambda x: mx.quantized_matmul(x, weight, scales, biases, transpose=True, **how)
    parts = _divided(weight, scales, biases, len(streams))

    def multiply(x: mx.array) -> mx.array:
        found = [
            mx.quantized_matmul(x, *part, transpose=True, **how, stream=stream)
            for part, stream in zip(parts, streams, strict=False)
        ]
        return mx.concatenate(found, axis=-1)

    return multiply


def _divided(
    weight: mx.array, scales: mx.array, biases: mx.array | None, count: int
) -> list[tuple[mx.array, mx.array, mx.array | None]]:
    """Packed numbers in at most `count` parts of the first axis."""
    step = -(-weight.shape[0] // count)
    ends = list(range(step, weight.shape[0], step))
    parts = [mx.split(array, ends) for array in (weight, scales)]
    return list(
        zip(*parts, [None] * len(parts[0]) if biases is None else mx.split(biases, ends), strict=True)
    )


def dequantize(
    weight: mx.array, scales: mx.array, biases: mx.array | None, how: QuantizeArguments
) -> mx.array:
    """The floats that packed numbers (…, O, W) stand for, unevaluated or, inside `eager()`, by tables of bytes: (…, O, I).

    The CPU backend computes each on one core: where there is no table, they are divided among the side streams there.
    """
    bits = how["bits"]
    if weight.size >= MANY_NUMBERS and how["mode"] == "affine" and scales.dtype == mx.float32:
        from zoo.runtime import arithmetic

        if bits is not None and bits in arithmetic.ITEMS and evaluates(weight, scales, biases):
            return arithmetic.dequantize(weight, scales, biases, bits)
    streams = device.side_streams()
    if len(streams) == 1 or weight.size < LEAST_DIVIDED:
        return mx.dequantize(weight, scales, biases, **how).astype(mx.float32)
    parts = _divided(weight, scales, biases, len(streams))
    found = [mx.dequantize(*part, **how, stream=stream) for part, stream in zip(parts, streams, strict=False)]
    return mx.concatenate(found).astype(mx.float32)


_pass: ContextVar[dict[Any, Any] | None] = ContextVar("pass", default=None)  # what `once_a_pass` has computed
Made = TypeVar("Made")


@contextmanager
def eager() -> Iterator[None]:
    """Allow the CPU to compute values as soon as they are needed: for passes that no transformation traces.

    MLX computes exp and tanh there one number at a time, and gathered matrices one row at a time. Once there are values,
    numpy's vectorised functions can be used, and the rows of each expert counted (`zoo.runtime.arithmetic`). No gradient passes.
    """
    token = _pass.set(None if device.on_gpu() else {})
    try:
        yield
    finally:
        _pass.reset(token)


def once_a_pass(key: Any, make: Callable[[], Made]) -> Made | None:
    """The result of `make`, which is called once for each `key` inside an `eager()`. None outside of it."""
    known = _pass.get()
    if known is None:
        return None
    if key not in known:
        known[key] = make()
    found: Made = known[key]
    return found


def evaluates(*arrays: mx.array | None) -> bool:
    """Whether this is inside `eager()`; the arrays then have their values."""
    if _pass.get() is None:
        return False
    try:
        mx.eval(arrays)
    except ValueError:  # a block of a plugin is traced by mx.compile or mx.vmap of its own
        return False
    return True


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """x / √(mean(x²) + ε) · weight in the fastest way here: (…, D), (D,) -> (…, D)."""
    width = x.shape[-1]
    mean = once_a_pass(("mean", width), lambda: mean_matrix(width))
    if mean is None or x.dtype != mx.float32 or weight.dtype != mx.float32:
        return mx.fast.rms_norm(x, weight, eps)
    rows = rms_normed(x.reshape(-1, width), weight[None], mx.array([[eps]]), mean)
    return rows.reshape(x.shape)


def rms_normed(x: mx.array, weight: mx.array, eps: mx.array, mean: mx.array) -> mx.array:
    """x / √(mean(x²) + ε) · weight by products of matrices: (N, D), (1, D), (1, 1) and `mean_matrix(D)` -> (N, D).

    On the CPU these are faster than sums, and than products of arrays of different shapes.
    """
    if x.shape[0] == 1:  # one operation fewer
        squares = mx.addmm(eps, x, x.T, 1 / x.shape[1])
    else:
        squares = mx.addmm(eps, mx.square(x), mean)
    return x * (mx.rsqrt(squares) @ weight)


def mean_matrix(size: int) -> mx.array:
    """The matrix (D, 1) whose product with a vector (…, D) is its mean (…, 1)."""
    mean = mx.full((size, 1), 1 / size)
    mx.eval(mean)
    return mean


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | str | None = None
) -> mx.array:
    """softmax(Q Kᵀ · scale + mask) V in the fastest way here: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K).

    `mask` is any that `mx.fast.scaled_dot_product_attention` takes.
    """
    many = queries.size // queries.shape[3] * keys.shape[2] >= MANY_NUMBERS and queries.dtype == mx.float32
    if not (many and evaluates(queries, keys, values)):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    from zoo.runtime import arithmetic

    return arithmetic.attention(queries, keys, values, scale, mask)


def row_groups(indices: mx.array) -> Sequence[tuple[slice, slice]] | None:
    """Of ascending indices (N,), each number, as a slice, and the rows that have it; None outside `eager()`."""
    if not evaluates(indices):
        return None
    from zoo.runtime import arithmetic

    return arithmetic.groups(indices)


def gather_matmul(x: mx.array, matrices: mx.array, indices: mx.array, in_order: bool = False) -> mx.array:
    """x @ matrices[indices], the matrices unmoved: (…, M, in), (E, in, out), (…) -> (…, M, out).

    `in_order` promises that `indices` (N,) ascend. The CPU backend knows this product in float32 only.
    """
    if in_order and (groups := row_groups(indices)):
        from zoo.runtime import arithmetic

        return arithmetic.grouped_product(x, lambda part: matrices[part], groups)
    if device.on_gpu() or x.dtype == mx.float32:
        return mx.gather_mm(x, matrices, rhs_indices=indices, sorted_indices=in_order)
    wide = gather_matmul(x.astype(mx.float32), matrices.astype(mx.float32), indices, in_order)
    return wide.astype(x.dtype)
