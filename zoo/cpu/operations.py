"""Operations of blocks by numpy, for passes over many tokens. Imports numpy when there is enough to compute."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from zoo.cpu.eager import evaluates

MANY_NUMBERS = 2**16  # whose exp takes the CPU longer than it takes to call numpy's


def elementwise(function: Callable[[mx.array], mx.array], name: str) -> Callable[[mx.array], mx.array]:
    """An activation; inside `eager()`, for many numbers, numpy's of that name."""

    def either(x: mx.array) -> mx.array:
        if x.size < MANY_NUMBERS or x.dtype != mx.float32 or not evaluates(x):
            return function(x)
        from zoo.cpu import arithmetic

        by_numpy = arithmetic.ACTIVATIONS.get(name)
        return arithmetic.in_pieces(by_numpy, x) if by_numpy else function(x)

    return either


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | str | None
) -> mx.array:  # (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)
    """softmax(Q Kᵀ · scale + mask) V; inside `eager()`, for many scores, by numpy."""
    many = queries.size // queries.shape[3] * keys.shape[2] >= MANY_NUMBERS and queries.dtype == mx.float32
    if not (many and evaluates(queries, keys, values)):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    from zoo.cpu import arithmetic

    return arithmetic.attention(queries, keys, values, scale, mask)


def grouped_matmul(
    x: mx.array, matrices: Callable[[slice], mx.array], indices: mx.array
) -> mx.array | None:  # (N, 1, in), a part (…, in, out), (N,) ascending -> (N, 1, out)
    """Each row times the matrix that its index names, one product a matrix; None outside `eager()`."""
    if not (indices.size and evaluates(indices)):
        return None
    from zoo.cpu import arithmetic

    return arithmetic.grouped_product(x, matrices, arithmetic.groups(indices))
