"""Attention, activations and products of grouped rows of computed values, for MLX's CPU backend.

That backend multiplies matrices by a fast BLAS, but computes exp one number at a time. numpy's exp is vectorised, and works on
an MLX array's own memory. `zoo.cpu.eager` says where values are computed. Nothing in them is traced: no gradient passes.

Axes: B batch, H heads, G key/value heads, R = H/G, T queries, t some of them, S keys, K width of a head. Of stacked
matrices: N rows, E matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby

import mlx.core as mx
import numpy as np

SCORES = 2**19  # numbers of a softmax at once, which stay in the processor's cache between its steps
PIECE = 2**15  # numbers of an activation at once, for the same reason
LEAST = np.finfo(np.float32).min  # the score of a key that a query does not see, as in MLX


def attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | str | None
) -> mx.array:  # (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)
    """softmax(Q Kᵀ · scale + mask) V, some queries at a time, causal ones with no more keys than they see."""
    batch, heads, count, width = queries.shape
    groups, length = keys.shape[1:3]
    queries = mx.contiguous(queries * scale)
    queries = queries.reshape(batch, groups, heads // groups, count, width)  # (B, G, R, T, K)
    keys, values = keys[:, :, None].swapaxes(-1, -2), values[:, :, None]  # (B, G, 1, K, S), (B, G, 1, S, K)
    step = min(max(SCORES // (batch * heads * length), 16), 128)
    mixed: list[mx.array] = []
    for start in range(0, count, step):
        stop = min(start + step, count)
        seen = length - count + stop if isinstance(mask, str) else length
        scores = queries[..., start:stop, :] @ keys[..., :seen]  # (B, G, R, t, s)
        mx.eval(scores, mixed[-1:])
        places = memory(scores).reshape(batch, heads, stop - start, seen)
        if isinstance(mask, str):
            places[..., start - stop :] += _triangle(stop - start)
        elif mask is not None:
            some = mask if mask.shape[-2] == 1 else mask[..., start:stop, :]
            if some.dtype == mx.bool_:
                np.copyto(places, LEAST, where=~np.array(some))
            else:
                places += np.array(some.astype(mx.float32))
        with np.errstate(invalid="ignore", over="ignore"):  # −∞ − −∞; LEAST plus a low score
            places -= places.max(axis=-1, keepdims=True)
            np.exp(places, out=places)
        total = scores @ mx.ones((seen, 1))  # (B, G, R, t, 1)
        mixed.append((scores @ values[..., :seen, :]) / total)
    return mx.concatenate(mixed, axis=-2).reshape(batch, heads, count, -1)


def memory(array: mx.array) -> np.ndarray:
    """A numpy view of an array's memory, writable in place. Nothing else may use the array."""
    return np.array(array, copy=False)


@lru_cache(maxsize=4)
def _triangle(size: int) -> np.ndarray:
    """The causal mask of `size` queries and their keys, added to scores: 0 where seen, (t, t)."""
    return np.where(np.tri(size, dtype=bool), np.float32(0), LEAST)


def in_pieces(function: Callable[[np.ndarray, np.ndarray], None], x: mx.array) -> mx.array:
    """Apply an elementwise numpy function, `function(read, written)`, to some numbers at a time."""
    result = mx.zeros(x.shape)
    read, written = memory(mx.contiguous(x)).reshape(-1), memory(result).reshape(-1)
    with np.errstate(over="ignore"):  # exp of a large number is ∞, by which x is divided
        for start in range(0, x.size, PIECE):
            function(read[start : start + PIECE], written[start : start + PIECE])
    return result


def silu(x: np.ndarray, y: np.ndarray, slope: float = 1) -> None:
    """x · σ(slope · x)."""
    np.multiply(x, -slope, out=y)
    _times_sigmoid(x, y)


def gelu_tanh(x: np.ndarray, y: np.ndarray) -> None:
    """½ x (1 + tanh z), z = √(2/π) (x + 0.044715 x³), which is x · σ(2z)."""
    np.multiply(x, x, out=y)
    y *= -2 * math.sqrt(2 / math.pi) * 0.044715
    y -= 2 * math.sqrt(2 / math.pi)
    y *= x
    _times_sigmoid(x, y)


def _times_sigmoid(x: np.ndarray, y: np.ndarray) -> None:
    """x · σ(−y), written to y."""
    np.exp(y, out=y)
    y += 1
    np.divide(x, y, out=y)


ACTIVATIONS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "silu": silu,
    "quick_gelu": partial(silu, slope=1.702),
    "gelu_tanh": gelu_tanh,
}


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
