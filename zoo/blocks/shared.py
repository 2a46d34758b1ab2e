"""Values that layers read from `passed`: an earlier layer's keys and values, and inputs of each layer's own.

Axes: B batch, T query length, S keys, D width, H heads, G key/value heads, K width of a head, L layers, N width of an input.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.activation import activation
from zoo.blocks.attention import Attention
from zoo.blocks.embedding import Embedding
from zoo.blocks.mask import Mask
from zoo.blocks.position import RoPE
from zoo.errors import RecipeError
from zoo.recipe.shared import PER_LAYER


class KeyValueSource(Attention):
    """Attention that gives its keys and values, (B, G, S, K) each, its mask and the position of its first query."""

    spec: recipe.KeyValueSource

    def __init__(self, spec: recipe.KeyValueSource, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        if spec.shares is not None and isinstance(self.rope, RoPE) and self.rope.depends_on_length:
            raise RecipeError(
                "rope: angles that depend on the length of the text are not implemented for shared keys"
            )

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        if self.spec.shares is None or passed is None:
            return super().__call__(x, mask, cache)
        offset = 0 if cache is None else cache.offset + 0  # a copy: other libraries' caches change theirs
        queries, keys, values = self.project(x)
        queries, keys = self.rotate(queries, offset), self.rotate(keys, offset)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        passed[self.spec.shares] = keys, values, mask, offset
        return self.output(self.merge(self.mix(queries, keys, values, mask)))


class SharedKeyValueAttention(Attention):
    """Attention with queries of its own, to what a `KeyValueSource` gives."""

    joins = ()

    spec: recipe.SharedKeyValueAttention

    def __init__(
        self, spec: recipe.SharedKeyValueAttention, *, dim: int, index: int = 0, **parts: Any
    ) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        del self.key, self.value

    def __call__(  # type: ignore[override]
        self, x: mx.array, mask: Mask, cache: Any, passed: dict[str, Any]
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        """Attend with the mask of the layer that gives the keys. `mask` and `cache` are ignored."""
        keys, values, mask, offset = passed[self.spec.source]
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        if "query_norm" in self:
            queries = self.query_norm(queries)
        return self.output(self.merge(self.mix(self.rotate(queries, offset), keys, values, mask)))


class PerLayerEmbedding(Embedding):
    """The vectors of tokens, and an input (B, T, L, N) for each layer, which it gives."""

    def __init__(
        self,
        spec: recipe.PerLayerEmbedding,
        *,
        dim: int,
        index: int = 0,
        projection_norm: nn.Module,
        **parts: Any,
    ) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.spec = spec
        wide = spec.layers * spec.width_per_layer
        self.layer_tokens = nn.Embedding(spec.rows, wide)
        self.projection = nn.Linear(dim, wide, bias=False)
        self.projection_norm = projection_norm

    def __call__(  # type: ignore[override]
        self, tokens: mx.array, offset: int | mx.array, passed: dict[str, Any]
    ) -> mx.array:  # (B, T) -> (B, T, D)
        x = super().__call__(tokens, offset)
        spec, shape = self.spec, (*tokens.shape, self.spec.layers, self.spec.width_per_layer)
        rows = self.layer_tokens(mx.where(tokens < spec.rows, tokens, 0)).reshape(shape)  # (B, T, L, N)
        projected = (self.projection(x) * x.shape[-1] ** -0.5).reshape(shape)
        passed[PER_LAYER] = (self.projection_norm(projected) + rows * spec.width_per_layer**0.5) * 2**-0.5
        return x


class PerLayerInput(nn.Module):
    """output(activation(gate(x)) · input), with the input of the layer of this `index`."""

    def __init__(self, spec: recipe.PerLayerInput, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.index, self.activation = index, activation(spec.activation)
        self.gate = nn.Linear(dim, spec.width_per_layer, bias=False)
        self.output = nn.Linear(spec.width_per_layer, dim, bias=False)

    def __call__(self, x: mx.array, passed: dict[str, Any]) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.output(self.activation(self.gate(x)) * passed[PER_LAYER][:, :, self.index])
