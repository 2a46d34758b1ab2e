"""Layers whose packed matrices stay as they are, while LoRA's low-rank change B A is added to each product.

Axes: I inputs, O outputs, R rank, E experts, V vocabulary, D width.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime


class AdaptedLinear(nn.Module):
    """layer(x) + B A x (LoRA: Hu et al., 2021, equation 3); DoRA multiplies each output by `growth` before the bias."""

    def __init__(
        self, layer: nn.Module, b: mx.array, a: mx.array, growth: mx.array | None = None
    ) -> None:  # (O, R), (R, I), (O,)
        super().__init__()
        self.layer, self.b, self.a = layer, b, a
        if growth is not None:
            self.growth = growth

    def __call__(self, x: mx.array) -> mx.array:  # (…, I) -> (…, O)
        y = self.layer(x)
        change = ((x @ self.a.T) @ self.b.T).astype(y.dtype)
        if "growth" not in self:
            return y + change
        bias = self.layer.get("bias", 0)
        return (y - bias + change) * self.growth.astype(y.dtype) + bias


class AdaptedStackedLinear(nn.Module):
    """The same for matrices stacked over experts: B (E, O, R), A (E, R, I)."""

    def __init__(self, layer: nn.Module, b: mx.array, a: mx.array) -> None:
        super().__init__()
        self.layer, self.b, self.a = layer, b, a

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, I), (…) -> (…, 1, O)
        y = self.layer(x, indices, in_order)
        low = runtime.gather_matmul(x, self.a.swapaxes(-1, -2), indices, in_order)
        return y + runtime.gather_matmul(low, self.b.swapaxes(-1, -2), indices, in_order).astype(y.dtype)


class AdaptedEmbedding(nn.Module):
    """An embedding (V, D) changed by B (V, R) times A (R, D), also used as the output projection."""

    def __init__(self, layer: nn.Module, b: mx.array, a: mx.array) -> None:
        super().__init__()
        self.layer, self.b, self.a = layer, b, a

    def __call__(self, tokens: mx.array) -> mx.array:  # (…) -> (…, D)
        y = self.layer(tokens)
        return y + (self.b[tokens] @ self.a).astype(y.dtype)

    def as_linear(self, x: mx.array) -> mx.array:  # (…, D) -> (…, V)
        """The logits of hidden states: their products with the changed vectors."""
        y = self.layer.as_linear(x)
        return y + ((x @ self.a.T) @ self.b.T).astype(y.dtype)


def adapted(layer: nn.Module, b: mx.array, a: mx.array, growth: mx.array | None = None) -> nn.Module | None:
    """The layer with the change B A; None for a kind of layer that has no such form."""
    if isinstance(layer, nn.QuantizedLinear):
        return AdaptedLinear(layer, b, a, growth)
    if growth is not None:
        return None
    if isinstance(layer, nn.QuantizedEmbedding):
        return AdaptedEmbedding(layer, b, a)
    return AdaptedStackedLinear(layer, b, a) if b.ndim == 3 else None
