"""An encoder, in which every token attends to every other, and an encoder-decoder.

Axes: B batch, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from zoo import recipe
from zoo.blocks.decoder import Decoder
from zoo.blocks.mask import biased, bidirectional_mask
from zoo.blocks.model import Model, Tower
from zoo.cache import CachePolicy
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


class EncoderDecoder(Model, nn.Module):
    """Source tokens to the encoder's output (the memory), then that and target tokens to logits (Vaswani et al., 2017, figure 1)."""

    inputs = "source and target"
    padding = frozenset({"left", "right"})  # of the source; a target's is on the left

    def __init__(
        self, spec: recipe.EncoderDecoder, *, dim: int, index: int = 0, encoder: Encoder, decoder: Decoder
    ) -> None:
        super().__init__()
        self.spec = spec
        self.encoder, self.decoder = encoder, decoder
        if spec.decoder.embedding.shared:
            decoder.embedding.share(encoder.embedding)

    def initialise(self, key: mx.array) -> None:
        """Random matrices whose outputs vary as their inputs do (Glorot and Bengio, 2010), tables from N(0, 1/D).

        Training starts from these: with the small numbers that suit a wide Pre-LN decoder, a narrow Post-LN one
        learns to write the target's language but not to attend to the source.
        """
        matrices = [(path, array) for path, array in tree_flatten(self.parameters()) if array.ndim == 2]

        def start(path: str, array: mx.array, key: mx.array) -> mx.array:
            scale = array.shape[1] ** -0.5 if ".embedding." in path else (2 / sum(array.shape)) ** 0.5
            return mx.random.normal(array.shape, scale=scale, key=key)

        keys = mx.random.split(key, len(matrices))
        started = [(path, start(path, array, own)) for (path, array), own in zip(matrices, keys, strict=True)]
        self.update(tree_unflatten(started))

    def make_cache(self, policy: CachePolicy | None = None) -> list[Any]:
        """One cache for each layer of the decoder."""
        return self.decoder.make_cache(policy)

    def refused(self, caches: Iterable[Any], policy: CachePolicy) -> str | None:
        """The reason why the decoder's caches cannot follow a policy, which never changes the source's keys and values."""
        return self.decoder.refused(caches, policy)

    def encode(self, source: mx.array, mask: mx.array | None = None) -> mx.array:  # (B, S) -> (B, S, D)
        """The memory of a source. `mask` (B, S): 1 for a token, 0 for padding, on either side."""
        # The first token is at position 0, wherever its row begins.
        start = {} if mask is None else {"offset": -mx.argmax(mask.astype(mx.int32), axis=1).astype(mx.int32)}
        return self.encoder.encode(source, mask, **start)

    def decode(
        self,
        target: mx.array,
        memory: mx.array | None,
        cache: Any = None,
        memory_mask: mx.array | None = None,
        mask: mx.array | None = None,
    ) -> mx.array:  # (B, T), (B, S, D) -> (B, T, V)
        """Logits of the token after each of the target's, which begins with the start token.

        `memory_mask` (B, S) is the source's mask, the same at every call; `mask` (B, T) marks left padding of the
        target, at the first call only. With a cache the source's keys and values are computed at the first call.
        """
        if memory_mask is not None:
            memory_mask = memory_mask.astype(mx.bool_)[:, None, None, :]  # (B, 1, 1, S)
        hidden = self.decoder.backbone(target, cache, mask, memory=memory, memory_mask=memory_mask)
        return self.decoder.head(hidden)

    def __call__(
        self,
        source: mx.array,
        target: mx.array,
        mask: mx.array | None = None,
        inputs_embeds: mx.array | None = None,
    ) -> mx.array:  # (B, S), (B, T) -> (B, T, V)
        """Logits of a whole target; `mask` is the source's."""
        if inputs_embeds is not None:
            raise PromptError("inputs_embeds: an encoder-decoder reads tokens only")
        return self.decode(target, self.encode(source, mask), memory_mask=mask)
