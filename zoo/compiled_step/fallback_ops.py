"""Norms, rotary positions and attention in single operations, for a backend that has no kernel of its own for them.

There MLX builds a graph of general operations at each call, which takes Python's thread longer than the few that a
single token needs. Axes: B batch, H heads, G key/value heads, S keys, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local

import mlx.core as mx

from zoo import runtime
from zoo.blocks.mask import Mask
from zoo.blocks.position import rotation_waves
from zoo.compiled_step.compiler import Function


def rms_norm(weight: mx.array, eps: float) -> Function:
    """x / √(mean(x²) + ε) · weight: (…, D) -> (…, D), in float32; `weight` may have more axes."""
    mean, least, row = runtime.mean_matrix(weight.shape[-1]), mx.array([[eps]]), mx.expand_dims(weight, 0)
    mx.eval(row)

    def normalise(x: mx.array) -> mx.array:
        x = x.astype(mx.float32)
        if x.ndim == row.ndim == 2:
            return runtime.rms_normed(x, row, least, mean)
        return x * (mx.rsqrt(mx.addmm(least, mx.square(x), mean)) * weight)

    return normalise


def layer_norm(weight: mx.array, bias: mx.array | None, eps: float) -> Function:
    """(x − mean(x)) / √(variance + ε) · weight + bias: (…, D) -> (…, D), in float32."""
    mean, least = runtime.mean_matrix(weight.shape[-1]), mx.array([[eps]])

    def normalise(x: mx.array) -> mx.array:
        x = x.astype(mx.float32)
        x = x - x @ mean
        x = x * mx.rsqrt(mx.addmm(least, mx.square(x), mean)) * weight
        return x if bias is None else x + bias

    return normalise


def attention(scale: float, heads: int, width: int) -> Function:
    """softmax(Q Kᵀ · scale + mask) V: (B, H, 1, K), two of (B, G, S, K), mask -> (B, H, 1, K) or (B, G, H/G, K).

    Heads that share keys are the rows of one product.
    """
    factor = mx.array(scale)
    factors = mx.full((1, heads, 1, width), scale)  # of one row: nothing is to be broadcast
    mx.eval(factor, factors)

    def attend(queries: mx.array, keys: mx.array, values: mx.array, mask: Mask) -> mx.array:
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
