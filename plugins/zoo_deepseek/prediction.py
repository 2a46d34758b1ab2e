"""DeepSeek-V3's layer for the token after the next. Axes: B batch, T length, D width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.mask import attention_mask
from zoo.blocks.model import Model
from zoo.cache import CachePolicy
from zoo_deepseek import prediction_spec as specs


class PredictionLayer(Model, nn.Module):
    """A layer on the projection of a hidden state and the token that it predicted (DeepSeek-V3, 2024, equations 21, 22).

    h' = M [norm(vector of token i + 1); norm(hidden state i)]. The paper writes the two the other way round; this is the
    order of the published matrix, and the hidden states are those after the model's final norm, as they are for the
    servers that run it.
    """

    decodes = False

    def __init__(
        self,
        spec: specs.PredictionLayer,
        *,
        dim: int,
        index: int = 0,
        embedding_norm: nn.Module,
        hidden_norm: nn.Module,
        layers: list[Any],
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding_norm, self.hidden_norm = embedding_norm, hidden_norm
        self.projection = nn.Linear(2 * dim, dim, bias=False)
        self.layers = layers
        self.norm = norm

    def make_cache(self, policy: CachePolicy | None = None) -> list[Any]:
        """The cache of its layer, in a list."""
        return [layer.make_cache(policy) for layer in self.layers]

    def __call__(
        self, vectors: mx.array, hidden: mx.array, caches: list[Any] | None = None
    ) -> mx.array:  # (B, T, D), (B, T, D) -> (B, T, D)
        both = mx.concatenate([self.embedding_norm(vectors), self.hidden_norm(hidden)], axis=-1)
        x = self.projection(both)  # (B, T, 2D) -> (B, T, D)
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            length = 0 if cache is None else cache.length
            x = layer(x, attention_mask(x.shape[1], length=length), cache)
        return x
