"""Norms, rotations and the attention of single tokens in few operations: MLX's CPU backend has no kernels for them.

It builds a graph of general operations at each call, which takes Python's thread longer than the few that a single token
needs. Products of matrices are faster there than sums, and than products of arrays of different shapes.

Axes: B batch, H heads, G key/value heads, S keys, T tokens, K width of a head, D width, N vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import local
from typing import Any

import mlx.core as mx

from zoo.cpu.eager import cache_per_forward

Function = Callable[..., mx.array]
MANY_NUMBERS = 2**20  # above which MLX's own function, whose parts are smaller, rotates faster


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """x / √(mean(x²) + ε) · weight: (…, D), (D,) -> (…, D); by products inside `eager()`."""
    width = x.shape[-1]
    mean = cache_per_forward(("mean", width), lambda: mean_matrix(width))
    if mean is None or x.dtype != mx.float32 or weight.dtype != mx.float32:
        return mx.fast.rms_norm(x, weight, eps)
    rows = rms_normalise(x.reshape(-1, width), weight[None], mx.array([[eps]]), mean)
    return rows.reshape(x.shape)


def rms_normalise(x: mx.array, weight: mx.array, eps: mx.array, mean: mx.array) -> mx.array:
    """x / √(mean(x²) + ε) · weight by products of matrices: (N, D), (1, D), (1, 1) and `mean_matrix(D)` -> (N, D)."""
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


def step_rms_norm(weight: mx.array, eps: float) -> Function:
    """x / √(mean(x²) + ε) · weight: (…, D) -> (…, D), in float32; `weight` may have more axes."""
    mean, least, row = mean_matrix(weight.shape[-1]), mx.array([[eps]]), mx.expand_dims(weight, 0)
    mx.eval(row)

    def normalise(x: mx.array) -> mx.array:
        x = x.astype(mx.float32)
        if x.ndim == row.ndim == 2:
            return rms_normalise(x, row, least, mean)
        return x * (mx.rsqrt(mx.addmm(least, mx.square(x), mean)) * weight)

    return normalise


def step_layer_norm(weight: mx.array, bias: mx.array | None, eps: float) -> Function:
    """(x − mean(x)) / √(variance + ε) · weight + bias: (…, D) -> (…, D), in float32."""
    mean, least = mean_matrix(weight.shape[-1]), mx.array([[eps]])

    def normalise(x: mx.array) -> mx.array:
        x = x.astype(mx.float32)
        x = x - x @ mean
        x = x * mx.rsqrt(mx.addmm(least, mx.square(x), mean)) * weight
        return x if bias is None else x + bias

    return normalise


def step_attention(scale: float, heads: int, width: int) -> Function:
    """softmax(Q Kᵀ · scale + mask) V: (B, H, 1, K), two of (B, G, S, K), mask -> (B, H, 1, K) or (B, G, H/G, K).

    Heads that share keys are the rows of one product.
    """
    factor = mx.array(scale)
    factors = mx.full((1, heads, 1, width), scale)  # of one row: nothing is to be broadcast
    mx.eval(factor, factors)

    def attend(queries: mx.array, keys: mx.array, values: mx.array, mask: Any) -> mx.array:
        if mask is not None or queries.dtype != mx.float32:
            return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
        batch, groups, _, width = keys.shape
        scaled = queries * (factors if batch == 1 else factor)
        rows = scaled.reshape(batch, groups, heads // groups, width)
        scores = rows @ keys.swapaxes(-1, -2)  # (B, G, H/G, S)
        return mx.softmax(scores, axis=-1) @ values

    return attend


class Rotation:
    """The rotation of heads by the rows' position or positions, (B, H, 1, K) -> (B, H, 1, K): pair k is (k, k + K/2).

    Layers that share it, and give it the same number or array, compute the angles once.
    """

    def __init__(self, frequencies: Sequence[float]) -> None:
        """`frequencies` in radians a position, K/2 of them."""
        self._frequencies, self._half = frequencies, len(frequencies)
        self._same = mx.eye(2 * self._half)
        self._other = mx.roll(self._same, self._half, axis=1)
        self._last = LastPosition()
        mx.eval(self._same, self._other)  # any thread may use them

    def __call__(self, x: mx.array, position: int | mx.array) -> mx.array:
        last = self._last
        if position is not last.position:
            rows = position if isinstance(position, int) else position[:, None, None, None]  # (B, 1, 1, 1)
            last.cos, last.sin = rotation_waves(rows, self._frequencies)
            if isinstance(position, int):
                last.matrix = self._same * last.cos + self._other * last.sin
            last.position = position
        if isinstance(position, int):
            return x @ last.matrix
        return x * last.cos + mx.roll(x, self._half, axis=-1) * last.sin


class LastPosition(local):
    """The last position, or positions (B,), of a thread, with sines and cosines; each thread has its own.

    `matrix` (K, K) is the rotation by one position: one product instead of five operations.
    """

    position: int | mx.array | None = None
    matrix: mx.array
    cos: mx.array
    sin: mx.array


def rotation_waves(
    positions: int | mx.array, frequencies: Sequence[float]
) -> tuple[mx.array, mx.array]:  # (…, 1), K/2 -> two of (…, K)
    """cos and sin of position · frequency for both halves of a head, with −sin for the first half.

    x · cos + (x rolled by half its width) · sin is then x rotated.
    """
    half = len(frequencies)
    angles = mx.array([*frequencies, *frequencies]) * positions
    return mx.cos(angles), mx.sin(angles) * mx.array([-1.0] * half + [1.0] * half)


def rotate_halves(
    x: mx.array, frequencies: Callable[[], Sequence[float]], offset: int
) -> mx.array | None:  # (B, H, T, K) -> (B, H, T, K)
    """x rotated by the positions from `offset` on, by angles that all layers of a forward pass share. Pair k is (k, k + K/2).

    None outside `eager()`, and where MLX's own function is faster.
    """
    if x.size > MANY_NUMBERS or x.dtype != mx.float32:
        return None
    radians, length = frequencies(), x.shape[-2]

    def make() -> tuple[mx.array, mx.array]:
        waves = rotation_waves((offset + mx.arange(length))[:, None], radians)
        mx.eval(waves)
        return waves

    waves = cache_per_forward(("rotation", radians, length, offset), make)
    if waves is None:
        return None
    cos, sin = waves
    return x * cos + mx.roll(x, x.shape[-1] // 2, axis=-1) * sin
