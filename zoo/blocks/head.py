"""The head: hidden states to logits. Axes: B batch, T length, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.embedding import Embedding


class Head(nn.Module):
    """A (V, D) matrix of its own, or the embedding's when tied (Press and Wolf, 2016)."""

    def __init__(self, spec: recipe.Head, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self._tied: Callable[[], Embedding] | None = None
        if not spec.tied:
            self.output = nn.Linear(dim, spec.vocab, bias=spec.bias)
        elif spec.bias:
            self.bias = mx.zeros((spec.vocab,))

    def tie(self, embedding: Embedding) -> None:
        """Use the table of `embedding`, when the recipe ties them. It stays the embedding's own parameter."""
        if self.spec.tied:
            self._tied = lambda: embedding  # behind a function: it is no part of the head

    @property
    def tied_to(self) -> Embedding | None:
        """The embedding whose table it uses, None for a head with a matrix of its own."""
        return None if self._tied is None else self._tied()

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        if self.spec.scale != 1.0:
            x = x * self.spec.scale
        if self._tied is None:
            return self.output(x)
        logits = self._tied().as_linear(x)
        return logits + self.bias if "bias" in self else logits
