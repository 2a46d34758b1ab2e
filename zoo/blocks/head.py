"""The head: hidden states to logits. Axes: B batch, T length, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.embedding import gathered
from zoo.recipe.vocabulary import HeadPart as Part


class Head(nn.Module):
    """A (V, D) matrix of its own, or the embedding's when tied (Press and Wolf, 2016)."""

    def __init__(self, spec: recipe.Head, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self._embedding: Callable[[], nn.Module] | None = None
        if not spec.tied:
            self.output = nn.Linear(dim, spec.vocab, bias=spec.bias)
        elif spec.bias:
            self.bias = mx.zeros((spec.vocab,))

    def tie(self, embedding: nn.Module) -> None:
        """Use the table of `embedding`, when the recipe ties them. It stays the embedding's own parameter."""
        if self.spec.tied:
            # Behind a function: nn.Module would count a module among its own parts, and so its table twice.
            self._embedding = lambda: embedding

    @property
    def embedding(self) -> nn.Module | None:
        """The embedding whose table is its matrix; None for a head with a matrix of its own."""
        return None if self._embedding is None else self._embedding()

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        if self.spec.scale != 1.0:
            x = x * self.spec.scale
        if self.embedding is None:
            return self.output(x)
        logits = self.embedding.as_linear(x)
        return logits + self.bias if "bias" in self else logits


class HeadPart(Head):
    """This rank's rows of a head's matrix. Each rank computes the logits of its rows."""

    def __init__(self, spec: Part, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.vocab = spec.vocab
        if not spec.tied:
            self.output = nn.Linear(dim, spec.rows, bias=spec.bias)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        logits = super().__call__(x)
        return logits if self.spec.tied else gathered(logits, self.vocab)  # a table gathers its own
