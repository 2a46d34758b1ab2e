"""Layers with LoRA's change beside their matrix: one adapter of packed layers, or several of which each pass uses one.

Axes: I inputs, O outputs, R rank, E experts, V vocabulary, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime


class AdaptedLayer(nn.Module):
    """The base of layers with a low-rank change: `layer`, B, A and, for a linear one, DoRA's `growth` (O,)."""

    def __init__(
        self, layer: nn.Module, b: mx.array, a: mx.array, growth: Any = None
    ) -> None:  # (O, R), (R, I), (O,)
        super().__init__()
        self.layer, self.b, self.a, self.growth = layer, b, a, growth  # None is no parameter


class AdaptedLinear(AdaptedLayer):
    """layer(x) + B A x (LoRA: Hu et al., 2021, equation 3); DoRA multiplies each output by `growth` before the bias."""

    def __call__(self, x: mx.array) -> mx.array:  # (…, I) -> (…, O)
        y = self.layer(x)
        change = ((x @ self.a.T) @ self.b.T).astype(y.dtype)
        if "growth" not in self:
            return y + change
        bias = self.layer.get("bias", 0)
        return (y - bias + change) * self.growth.astype(y.dtype) + bias


class AdaptedStackedLinear(AdaptedLayer):
    """The same for matrices stacked over experts: B (E, O, R), A (E, R, I)."""

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, I), (…) -> (…, 1, O)
        y = self.layer(x, indices, in_order)
        low = runtime.gather_matmul(x, self.a.swapaxes(-1, -2), indices, in_order)
        return y + runtime.gather_matmul(low, self.b.swapaxes(-1, -2), indices, in_order).astype(y.dtype)


class AdaptedEmbedding(AdaptedLayer):
    """An embedding (V, D) changed by B (V, R) times A (R, D), also used as the output projection."""

    def __call__(self, tokens: mx.array) -> mx.array:  # (…) -> (…, D)
        y = self.layer(tokens)
        return y + (self.b[tokens] @ self.a).astype(y.dtype)

    def as_linear(self, x: mx.array) -> mx.array:  # (…, D) -> (…, V)
        """The logits of hidden states: their products with the changed vectors."""
        y = self.layer.as_linear(x)
        return y + ((x @ self.a.T) @ self.b.T).astype(y.dtype)


def adapted(layer: nn.Module, b: mx.array, a: mx.array, growth: mx.array | None = None) -> nn.Module | None:
    """The layer with the change B A; None for a kind of layer that has no such form."""
    if isinstance(layer, nn.Linear | nn.QuantizedLinear):
        return AdaptedLinear(layer, b, a, growth)
    if growth is not None:
        return None
    if isinstance(layer, nn.Embedding | nn.QuantizedEmbedding):
        return AdaptedEmbedding(layer, b, a)
    return AdaptedStackedLinear(layer, b, a) if b.ndim == 3 else None


class AdapterChoice:
    """The adapter that the next passes of a model use, one of `names`; None is the model without any."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self.current: str | None = None

    @contextmanager
    def use(self, name: str | None) -> Iterator[None]:
        """Let the passes that are begun meanwhile use this adapter."""
        before, self.current = self.current, name
        try:
            yield
        finally:
            self.current = before


class SharedLayer(nn.Module):
    """A layer that several adapters change: the `choice` of a pass says which change is added."""

    def __init__(self, layer: nn.Module, choice: AdapterChoice) -> None:
        super().__init__()
        self.layer = layer
        # The changed forms hold the layer, too: as no part, so that its parameters have one path.
        object.__setattr__(self, "_changed", {})
        object.__setattr__(self, "_choice", choice)

    def add(self, name: str, changed: nn.Module) -> None:
        """Use `changed` in the layer's place for the adapter `name`."""
        self._changed[name] = changed

    def forms(self) -> list[nn.Module]:
        """The changed forms of the layer."""
        return list(self._changed.values())

    def used(self) -> Any:
        """The form of the layer that the current pass uses."""
        return self._changed.get(self._choice.current, self.layer)

    def __call__(self, *inputs: Any, **named: Any) -> mx.array:
        return self.used()(*inputs, **named)  # type: ignore[no-any-return]

    def as_linear(self, x: mx.array) -> mx.array:  # (…, D) -> (…, V)
        """The logits of an embedding's layer."""
        return self.used().as_linear(x)  # type: ignore[no-any-return]
