"""BERT's embedding and head. Axes: B batch, S length, D width, V vocabulary."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

import zoo_bert as specs
from zoo.blocks.activation import activation
from zoo.blocks.embedding import Embedding
from zoo.blocks.head import Head


class TypedEmbedding(Embedding):
    """norm(token + type + position) (Devlin et al., 2018, figure 2)."""

    def __init__(
        self,
        spec: specs.TypedEmbedding,
        *,
        dim: int,
        index: int = 0,
        norm: nn.Module,
        positions: nn.Module | None = None,
    ) -> None:
        super().__init__(spec, dim=dim, index=index, positions=positions, norm=norm)
        self.types = nn.Embedding(spec.token_types, dim)

    def __call__(
        self,
        tokens: mx.array,
        offset: int | mx.array = 0,
        inputs_embeds: mx.array | None = None,
        token_types: mx.array | None = None,
    ) -> mx.array:  # (B, S), (B, S) -> (B, S, D)
        """Without `token_types` every token is of the first sentence, type 0."""
        types = self.types(mx.zeros((1, 1), mx.int32) if token_types is None else token_types)
        x = self.look_up(tokens) if inputs_embeds is None else inputs_embeds
        x = x + types
        return self.norm(x + self.positions(x.shape[1], offset) if "positions" in self else x)


class MaskedHead(Head):
    """norm(activation(dense(x))), then logits (Devlin et al., 2018; its code's `get_masked_lm_output`)."""

    def __init__(self, spec: specs.MaskedHead, *, dim: int, index: int = 0, norm: nn.Module) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.dense = nn.Linear(dim, dim, bias=spec.dense_bias)
        self.norm = norm
        self.activation = activation(spec.activation)

    def __call__(self, x: mx.array) -> mx.array:  # (B, S, D) -> (B, S, V)
        return super().__call__(self.norm(self.activation(self.dense(x))))
