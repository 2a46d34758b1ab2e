"""An encoder: every token sees every other. Axes: B batch, S length, D width, V vocabulary."""

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.mask import biased
from zoo.blocks.model import Model
from zoo.errors import PromptError


class Encoder(Model, nn.Module):
    """Tokens to hidden states, and, with a head, on to its logits."""

    decodes = False
    padding = frozenset({"left", "right"})

    def __init__(self, spec, *, dim, index=0, embedding, layers, norm=None, head=None, relative=None):
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

    def encode(self, tokens, mask=None, **inputs):  # (B, S) -> (B, S, D)
        """Hidden states. `mask` (B, S): 1 for a token, 0 for padding, on either side.

        `inputs` go to the embedding, for those that take more than tokens.
        """
        if inputs.get("inputs_embeds") is not None:
            raise PromptError("inputs_embeds: an encoder reads tokens only")
        x = self.embedding(tokens, **inputs)
        seen = None if mask is None else mask.astype(mx.bool_)[:, None, None, :]  # (B, 1, 1, S)
        if "relative" in self:
            seen = biased(seen, self.relative(tokens.shape[1]))  # (B, H, S, S)
        for layer in self.layers:
            x = layer(x, seen)
        return self.norm(x) if "norm" in self else x

    def __call__(self, tokens, mask=None, **inputs):  # (B, S) -> (B, S, V), or (B, S, D) without a head
        hidden = self.encode(tokens, mask, **inputs)
        return self.head(hidden) if "head" in self else hidden
