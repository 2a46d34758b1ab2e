"""Norms and rotary positions in single operations, for a backend that has no kernel of its own for them.

There MLX builds a graph of general operations at each call, which takes Python's thread longer than the few that a
single token needs. Axes: B batch, H heads, D width, K width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from zoo.prepared.forms import Function


def rms_norm(weight: mx.array, eps: float) -> Function:
    """x / √(mean(x²) + ε) · weight: (…, D) -> (…, D)."""
    least = mx.array(eps, weight.dtype)
    return lambda x: x * mx.rsqrt(mx.square(x).mean(axis=-1, keepdims=True) + least) * weight


class Turn:
    """The rotation of heads by one position, (B, H, 1, K) -> (B, H, 1, K): pair k is (k, k + K/2).

    Layers that share it compute the angles of a position once.
    """

    def __init__(self, frequencies: Sequence[float]) -> None:
        """`frequencies` in radians a position, K/2 of them."""
        half = len(frequencies)
        self._frequencies = mx.array([*frequencies, *frequencies], mx.float32)
        self._signs = mx.array([-1.0] * half + [1.0] * half)
        self._half = half
        self._position: int | None = None

    def __call__(self, x: mx.array, position: int) -> mx.array:
        if position != self._position:
            angles = self._frequencies * position
            self._cos, self._sin = mx.cos(angles), mx.sin(angles) * self._signs
            self._position = position
        return x * self._cos + mx.roll(x, self._half, axis=-1) * self._sin
