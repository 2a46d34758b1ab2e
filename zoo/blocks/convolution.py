"""The short causal convolution before a state space, and what starts both. Axes: B batch, T length, E channels, K kernel."""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn


class Convolution(nn.Module):
    """Each channel by itself: the sum of its last K values, each times its weight."""

    def __init__(self, channels: int, kernel: int, bias: bool) -> None:
        super().__init__()
        self.weight = mx.zeros((kernel, channels))
        if bias:
            self.bias = mx.zeros((channels,))

    def draw_weight(self, key: mx.array) -> None:
        """Draw the weight for training: uniform, within 1/√K."""
        spread = self.weight.shape[0] ** -0.5
        self.weight = mx.random.uniform(-spread, spread, self.weight.shape, key=key)

    def __call__(
        self, x: mx.array, before: mx.array | None = None, mask: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:  # (B, T, E) -> (B, T, E), (B, K − 1, E)
        """The convolution of `x`, and the values that the next call needs; `before` are those of the last.

        `mask` (B, T) says which columns hold a token.
        """
        batch, length, channels = x.shape
        kernel = self.weight.shape[0]
        if before is None:
            before = mx.zeros((batch, kernel - 1, channels), dtype=x.dtype)
        x = mx.concatenate([before, x], axis=1)  # (B, K − 1 + T, E)
        rows = enumerate(mx.split(self.weight, kernel))
        y = sum((row * x[:, k : k + length] for k, row in rows), self.get("bias", 0))
        if mask is None:
            return y, x[:, length:]
        # Where columns on the right hold no token, the next call needs the values before those.
        ends = (mask * mx.arange(1, length + 1)).max(axis=1)  # (B,)
        kept = ends[:, None] + mx.arange(kernel - 1)  # (B, K − 1)
        return y, mx.take_along_axis(x, kept[..., None], axis=1)


def step_bias(channels: int, key: mx.array) -> mx.array:  # (E,)
    """A bias to start a state space with: its softplus, dt, is spread evenly in log from 0.001 to 0.1 (Gu and Dao, 2023)."""
    dt = mx.exp(mx.random.uniform(math.log(0.001), math.log(0.1), (channels,), key=key))
    return dt + mx.log(-mx.expm1(-dt))


def tokens_only(x: mx.array, mask: mx.array | None) -> mx.array:  # (B, T, E), (B, T) -> (B, T, E)
    """Zeros where a column holds no token; `mask` None: all do."""
    return x if mask is None else mx.where(mask[..., None], x, 0)
