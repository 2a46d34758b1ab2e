"""Operations of blocks in the fastest way of this device: MLX's own, or what `zoo.cpu` has in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypedDict

import mlx.core as mx

from zoo.runtime import device
from zoo.runtime.device import cpu_uses

LARGE = 2**26  # bytes of weights from which on most prompts need what `import_operations` imports


def import_operations(nbytes: int) -> None:
    """Import what computes a prompt of a model of `nbytes`, so that the first one does not wait for it."""
    if nbytes >= LARGE and cpu_uses("numpy"):
        import zoo.cpu.arithmetic  # noqa: F401


def eager() -> AbstractContextManager[None]:
    """A context in which values may be computed as soon as they are needed: for passes that no transformation traces.

    No gradient passes.
    """
    if not (cpu_uses("numpy") or cpu_uses("few-operations")):
        return nullcontext()
    from zoo.cpu.eager import eager

    return eager()


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one kernel on a GPU; unchanged on the CPU, where MLX would call a C++ compiler."""
    if not device.on_gpu():
        return function
    compiled = mx.compile(function, shapeless=True)
    # `copy.deepcopy` of a module copies a Python function, but fails on the object that `mx.compile` returns.
    return lambda *arrays: compiled(*arrays)


def elementwise(function: Callable[[mx.array], mx.array], name: str) -> Callable[[mx.array], mx.array]:
    """The activation of this name, which `function` computes."""
    if not cpu_uses("numpy"):
        return fused(function)
    from zoo.cpu.operations import elementwise

    return elementwise(function, name)


def store_matrix(array: mx.array) -> mx.array:
    """The array in memory of its own, unevaluated; a transposed matrix stays as it lies.

    A product with a matrix whose rows lie apart would copy it each time.
    """
    return mx.contiguous(array, allow_col_major=True)


class QuantizeArguments(TypedDict):
    """How numbers are packed, as MLX's functions take it."""

    group_size: int | None
    bits: int | None
    mode: str


def quantized_matmul(
    weight: mx.array, scales: mx.array, biases: mx.array | None, how: QuantizeArguments
) -> Callable[[mx.array], mx.array]:
    """x -> x times the transposed matrix (O, I) of packed numbers: (…, I) -> (…, O)."""

    def multiply(
        weight: mx.array, scales: mx.array, biases: mx.array | None, x: mx.array, stream: object = None
    ) -> mx.array:
        return mx.quantized_matmul(x, weight, scales, biases, transpose=True, **how, stream=stream)

    if weight.ndim != 2 or not cpu_uses("streams"):
        return lambda x: multiply(weight, scales, biases, x)
    from zoo.cpu.streams import in_parts

    return in_parts(multiply, -1, weight, scales, biases)


def dequantize(
    weight: mx.array, scales: mx.array, biases: mx.array | None, how: QuantizeArguments
) -> mx.array:
    """The floats that packed numbers (…, O, W) stand for, unevaluated or, inside `eager()`, computed: (…, O, I)."""
    if not cpu_uses("floats"):
        return mx.dequantize(weight, scales, biases, **how).astype(mx.float32)
    from zoo.cpu.floats import dequantize

    return dequantize(weight, scales, biases, how)


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """x / √(mean(x²) + ε) · weight: (…, D), (D,) -> (…, D)."""
    if not cpu_uses("few-operations"):
        return mx.fast.rms_norm(x, weight, eps)
    from zoo.cpu.few_operations import rms_norm

    return rms_norm(x, weight, eps)


def rotate_halves(
    x: mx.array, frequencies: Callable[[], Sequence[float]], offset: int
) -> mx.array | None:  # (B, H, T, K) -> (B, H, T, K)
    """x rotated by the positions from `offset` on, where that is faster than by `mx.fast.rope`; else None.

    Pair k is (k, k + K/2). `frequencies` gives the K/2 radians a position.
    """
    if not cpu_uses("few-operations"):
        return None
    from zoo.cpu.few_operations import rotate_halves

    return rotate_halves(x, frequencies, offset)


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | str | None = None
) -> mx.array:
    """softmax(Q Kᵀ · scale + mask) V: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K).

    `mask` is any that `mx.fast.scaled_dot_product_attention` takes.
    """
    if not cpu_uses("numpy"):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    from zoo.cpu.operations import attention

    return attention(queries, keys, values, scale, mask)


def grouped_matmul(
    x: mx.array, matrices: Callable[[slice], mx.array], indices: mx.array
) -> mx.array | None:  # (N, 1, in), a part (…, in, out), (N,) ascending -> (N, 1, out)
    """Each row times the matrix that its index names, where one product a matrix is faster; else None."""
    if not cpu_uses("numpy"):
        return None
    from zoo.cpu.operations import grouped_matmul

    return grouped_matmul(x, matrices, indices)


def gather_matmul(x: mx.array, matrices: mx.array, indices: mx.array, in_order: bool = False) -> mx.array:
    """x @ matrices[indices], the matrices unmoved: (…, M, in), (E, in, out), (…) -> (…, M, out).

    `in_order` promises that `indices` (N,) ascend. The CPU backend knows this product in float32 only.
    """
    grouped = grouped_matmul(x, lambda part: matrices[part], indices) if in_order else None
    if grouped is not None:
        return grouped
    if device.on_gpu() or x.dtype == mx.float32:
        return mx.gather_mm(x, matrices, rhs_indices=indices, sorted_indices=in_order)
    wide = gather_matmul(x.astype(mx.float32), matrices.astype(mx.float32), indices, in_order)
    return wide.astype(x.dtype)
