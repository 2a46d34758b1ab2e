"""An encoder: every token attends to every other. Axes: B batch, S length, D width, V vocabulary."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.mask import biased
from zoo.blocks.model import Model
from zoo.errors import PromptError


class Encoder(Model, nn.Module):
    """Tokens to hidden states, and, with a head, on to its logits."""

    decodes = False
    padding = frozenset({"left", "right"})

    def __init__(
        self,
        spec: recipe.Encoder,
        *,
        dim: int,
        index: int = 0,
        embedding: nn.Module,
        layers: list[Any],
        norm: nn.Module | None = None,
        head: nn.Module | None = None,
        relative: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = embedding
        self.layers = layers
        if norm is not None:
            self.norm = norm
        if head is not None:
            self.head = head
            head.tie(embedding)
        if relative is not None:
            self.relative = relative

    def encode(
        self, tokens: mx.array, mask: mx.array | None = None, **inputs: Any
    ) -> mx.array:  # (B, S) -> (B, S, D)
        """Hidden states. `mask` (B, S): 1 for a token, 0 for padding, on either side.

        `inputs` go to the embedding, for those that take more than tokens.
        """
        if inputs.get("inputs_embeds") is not None:
            raise PromptError("inputs_embeds: an encoder reads tokens only")
        x = self.embedding(tokens, **inputs)
        attention = None if mask is None else mask.astype(mx.bool_)[:, None, None, :]  # (B, 1, 1, S)
        if "relative" in self:
            attention = biased(attention, self.relative(tokens.shape[1]))  # (B, H, S, S)
        for layer in self.layers:
            x = layer(x, attention)
        return self.norm(x) if "norm" in self else x

    def __call__(
        self, tokens: mx.array, mask: mx.array | None = None, **inputs: Any
    ) -> mx.array:  # (B, S) -> (B, S, V), or (B, S, D) without a head
        hidden = self.encode(tokens, mask, **inputs)
        return self.head(hidden) if "head" in self else hidden
