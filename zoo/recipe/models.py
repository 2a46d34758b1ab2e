"""Whole models: what goes in, the layers, what comes out. Imports no mlx."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.errors import RecipeError
from zoo.recipe.spec import Spec


@dataclass(frozen=True)
class Embedding(Spec):
    """A table of one vector a token, (V, D), and what marks the position, when that is added here."""

    kind, name = "embedding", "tokens"
    vocab: int
    dim: int
    positions: Spec | None = None

    def own_parameters(self, dim: int) -> int:
        return self.vocab * dim


@dataclass(frozen=True)
class Head(Spec):
    """Hidden states to logits, D → V: the embedding table again when `tied`, else a matrix of its own.

    `vocab` None: the embedding's.
    """

    kind, name = "head", "logits"
    tied: bool = False
    bias: bool = False
    vocab: int | None = None

    def own_parameters(self, dim: int) -> int:
        if self.tied:
            return 0
        return (dim + self.bias) * (self.vocab or 0)


@dataclass(frozen=True)
class Decoder(Spec):
    """Embedding, layers, final norm (None under Post-LN), head. `context` is the most positions it can take.

    `causality`: "causal", "prefix" (the prompt sees itself both ways) or "full".
    """

    kind, name = "model", "decoder"
    embedding: Embedding
    layers: tuple[Spec, ...]
    norm: Spec | None
    head: Head
    context: int | None = None
    causality: str = "causal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layers:
            raise RecipeError("layers: a model needs at least one")
        if self.head.vocab is None:
            object.__setattr__(self, "head", self.head.change(vocab=self.embedding.vocab))

    @property
    def dim(self) -> int:
        """The model's width, D."""
        return self.embedding.dim

    def change_layers(
        self, change: Callable[[int, Spec], Mapping[str, Any]] | None = None, **changes: Any
    ) -> typing.Self:
        """A copy with every layer changed: by `changes`, or by what `change(index, layer)` gives for each."""
        layers = tuple(
            layer.change(**(change(index, layer) if change else changes))
            for index, layer in enumerate(self.layers)
        )
        return dataclasses.replace(self, layers=layers)


def repeat(layer: Spec, count: int) -> tuple[Spec, ...]:
    """The same layer `count` times."""
    return (layer,) * count
