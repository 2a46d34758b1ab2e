"""Layers whose matrices stay as they are, packed, while a low-rank change is added to each product.

Axes: I inputs, O outputs, R rank, E experts, V vocabulary, D width.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime


class AdaptedLinear(nn.Module):
    """layer(x) + up (down x) (Hu et al., 2021, equation 3), each output times `growth` before the bias (DoRA)."""

    def __init__(
        self, layer: nn.Module, up: mx.array, down: mx.array, growth: mx.array | None = None
    ) -> None:  # (O, R), (R, I), (O,)
        super().__init__()
        self.layer, self.up, self.down = layer, up, down
        if growth is not None:
            self.growth = growth

    def __call__(self, x: mx.array) -> mx.array:  # (…, I) -> (…, O)
        y = self.layer(x)
        change = ((x @ self.down.T) @ self.up.T).astype(y.dtype)
        if "growth" not in self:
            return y + change
        bias = self.layer.get("bias", 0)
        return (y - bias + change) * self.growth.astype(y.dtype) + bias


class AdaptedStackedLinear(nn.Module):
    """The same for matrices stacked over experts: (E, O, R), (E, R, I)."""

    def __init__(self, layer: nn.Module, up: mx.array, down: mx.array) -> None:
        super().__init__()
        self.layer, self.up, self.down = layer, up, down

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, I), (…) -> (…, 1, O)
        y = self.layer(x, indices, in_order)
        low = runtime.gather_matmul(x, self.down.swapaxes(-1, -2), indices, in_order)
        return y + runtime.gather_matmul(low, self.up.swapaxes(-1, -2), indices, in_order).astype(y.dtype)


class AdaptedEmbedding(nn.Module):
    """A table of (V, D) vectors, changed by (V, R) times (R, D), read both ways."""

    def __init__(self, layer: nn.Module, up: mx.array, down: mx.array) -> None:
        super().__init__()
        self.layer, self.up, self.down = layer, up, down

    def __call__(self, tokens: mx.array) -> mx.array:  # (…) -> (…, D)
        y = self.layer(tokens)
        return y + (self.up[tokens] @ self.down).astype(y.dtype)

    def as_linear(self, x: mx.array) -> mx.array:  # (…, D) -> (…, V)
        """The changed table backwards."""
        y = self.layer.as_linear(x)
        return y + ((x @ self.down.T) @ self.up.T).astype(y.dtype)


def adapted(
    layer: nn.Module, up: mx.array, down: mx.array, growth: mx.array | None = None
) -> nn.Module | None:
    """The layer with the change; None for a kind that none is made for."""
    if isinstance(layer, nn.QuantizedLinear):
        return AdaptedLinear(layer, up, down, growth)
    if growth is not None:
        return None
    if isinstance(layer, nn.QuantizedEmbedding):
        return AdaptedEmbedding(layer, up, down)
    return AdaptedStackedLinear(layer, up, down) if mx.array(up).ndim == 3 else None
