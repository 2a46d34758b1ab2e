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


def product(matrix: mx.array, bias: mx.array | None = None) -> Function:
    """x and perhaps a residual -> x Wᵀ + b, or plus the residual in the place of b: (B, I), (B, O) -> (B, O).

    `matrix` is W (O, I), `bias` b (O,).
    """
    transposed = matrix.T
    mx.eval(transposed)  # once, and by this thread: a step has no transposition of its own

    def multiply(x: mx.array, residual: mx.array | None = None) -> mx.array:
        added = bias if residual is None else residual
        return x @ transposed if added is None else mx.addmm(added, x, transposed)

    return multiply
