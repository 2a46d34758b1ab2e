"""Attention, activations, products of grouped rows and unpacking of computed values, for MLX's CPU backend.

That backend multiplies matrices by a fast BLAS, but computes exp and unpacks numbers one at a time. numpy's exp is
vectorised, and works on an MLX array's own memory. Packed numbers become floats by tables. `zoo.runtime.operations` says
where these functions are used. Nothing in them is traced: no gradient passes.

Axes: B batch, H heads, G key/value heads, R = H/G, T queries, t some of them, S keys, K width of a head. Of stacked
matrices: N rows, E matrices. Of packed ones: O outputs, I inputs, W 32-bit words, G groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from itertools import groupby
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.runtime.device import threads

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


COPIED_ROWS = 128  # at once: their parts of a column are written while these lie in the processor's cache


class ColumnMajorCopy:
    """A copy of a matrix (O, I) in column-major order, made piece by piece, several times faster than by MLX.

    The matrix must be evaluated.
    """

    def __init__(self, matrix: mx.array) -> None:
        self._found = mx.zeros(matrix.shape[::-1], matrix.dtype)
        mx.eval(self._found)
        self._source, self._target, self._rows = memory(matrix), memory(self._found), 0

    def extend(self, numbers: int) -> int:
        """Copy at least so many numbers more, if there are so many, in whole rows. Returns how many were copied."""
        first, (outputs, inputs) = self._rows, self._source.shape
        last = self._rows = min(first + -(-numbers // inputs), outputs)

        def write(start: int) -> None:
            some = slice(start, min(start + COPIED_ROWS, last))
            self._target[:, some] = self._source[some].T

        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(write, range(first, last, COPIED_ROWS)))
        return (last - first) * inputs

    @property
    def matrix(self) -> mx.array | None:
        """The column-major matrix (O, I); None until all of it is copied."""
        if self._rows < len(self._source):
            return None
        found = self._found.T
        mx.eval(found)
        return found


DEQUANTIZED_PIECE = 2**19  # numbers at once: with fewer, threads wait for each other between the steps
ITEMS = {2: np.complex128, 4: np.float64, 8: np.float32}  # by bits, as wide as the floats of one byte


def dequantize(words: mx.array, scales: mx.array, biases: mx.array, bits: int) -> mx.array:
    """q · scale + bias of affine packed numbers, which are computed already: (…, O, W), two of (…, O, G) -> (…, O, I).

    Scales and biases are in float32, `bits` one of `ITEMS`.
    """
    codes, factors, offsets = (memory(mx.contiguous(array)) for array in (words, scales, biases))
    codes = codes.view(np.uint8).reshape(-1)
    factors, offsets = factors.reshape(-1, 1), offsets.reshape(-1, 1)
    floats = mx.zeros((*words.shape[:-1], words.shape[-1] * 32 // bits))
    mx.eval(floats)
    groups = memory(floats).reshape(factors.size, -1)
    step = max(DEQUANTIZED_PIECE // groups.shape[1], 1)

    def write(first: int) -> None:
        some = slice(first, first + step)
        written = groups[some]
        items: np.ndarray = written.reshape(-1).view(ITEMS[bits])
        start = first * groups.shape[1] * bits // 8
        np.take(_table(bits), codes[start : start + items.size], out=items, mode="clip")
        written *= factors[some]
        written += offsets[some]

    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(write, range(0, factors.size, step)))
    return floats


@cache
def _table(bits: int) -> Any:  # (256,)
    """The floats of each byte's numbers, the lowest bits first, as one item."""
    numbers = np.arange(256)
    parts = [numbers >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).astype(np.float32).view(ITEMS[bits]).reshape(-1)
