"""An encoder: every token attends to every other. Axes: B batch, S length, D width, V vocabulary."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.blocks.mask import biased, bidirectional_mask
from zoo.blocks.model import Tower
from zoo.errors import PromptError


class Encoder(Tower):
    """Tokens to hidden states, and, with a head, on to its logits."""

    decodes = False
    padding = frozenset({"left", "right"})

    def encode(
        self, tokens: mx.array, mask: mx.array | None = None, **inputs: Any
    ) -> mx.array:  # (B, S) -> (B, S, D)
        """Hidden states. `mask` (B, S): 1 for a token, 0 for padding, on either side.

        `inputs` go to the embedding, for those that take more than tokens.
        """
        if inputs.get("inputs_embeds") is not None:
            raise PromptError("inputs_embeds: an encoder reads tokens only")
        x = self.embedding(tokens, **inputs)
        holds_token = None if mask is None else mask.astype(mx.bool_)  # (B, S)
        windows = [need.memories[0].window for need in self.needs]  # of each layer's attention
        masks = {}
        for window in set(windows):
            seen = bidirectional_mask(tokens.shape[1], window=window, tokens=holds_token)
            if "relative" in self:
                seen = biased(seen, self.relative(tokens.shape[1]))  # (B, H, S, S)
            masks[window] = seen
        for layer, window in zip(self.layers, windows, strict=True):
            x = layer(x, masks[window])
        return self.norm(x) if "norm" in self else x

    def __call__(
        self, tokens: mx.array, mask: mx.array | None = None, **inputs: Any
    ) -> mx.array:  # (B, S) -> (B, S, V), or (B, S, D) without a head
        hidden = self.encode(tokens, mask, **inputs)
        return self.head(hidden) if "head" in self else hidden
