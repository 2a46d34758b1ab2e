"""A decoder-only model: embedding, layers, final norm, head.

Axes: B batch, T length, S cached and new, D width, V vocabulary.
"""

from functools import cached_property

import mlx.nn as nn

from zoo.blocks.mask import attention_mask, biased, padded_columns, token_columns
from zoo.errors import RecipeError

RECURRENT = "recurrent"


class Decoder(nn.Module):
    """Tokens to logits. The model makes the masks, one for each distinct window among its layers.

    Attention gets what its queries may see (None, "causal" or an array, see `zoo.blocks.mask`). A mixer whose
    spec has the attribute `recurrent`, true, sees no keys but carries a state from column to column: it gets
    which columns hold a token, (B, T) booleans, or None when all do. Where one is false, on the left of a row (or,
    with mlx-lm's caches, on the right of a prompt), the state must stay as if the column were not there.
    """

    def __init__(self, spec, *, dim, index=0, embedding, layers, head, norm=None, relative=None):
        super().__init__()
        self.spec = spec
        if spec.causality != "full":  # where all tokens see each other, nothing need be kept
            refuse_without_cache(spec.layers, layers)
        self.embedding = embedding
        self.layers = layers
        if norm is not None:
            self.norm = norm
        self.head = head
        head.tie(embedding)
        if relative is not None:
            self.relative = relative

    @cached_property
    def windows(self):
        """The window of each layer, None where it sees everything, `RECURRENT` where it carries a state."""
        return [_window(layer) for layer in self.spec.layers]

    def make_cache(self, policy=None):
        """One cache a layer."""
        refuse_without_cache(self.spec.layers, self.layers)
        return [_caching(layer).make_cache(policy) for layer in self.layers]

    def backbone(self, tokens, cache=None, mask=None, prefix=None, **source):  # (B, T) -> (B, T, D)
        """Everything but the head. `mask` (B, T), 1 for a token, marks left padding, at the first call only.

        `prefix`: under "prefix" causality, how many tokens from the left see each other both ways. `source` goes to
        every layer: what those of an encoder-decoder look at.
        """
        cache = cache or [None] * len(self.layers)
        padding = None if mask is None else padded_columns(mask)
        if padding is not None and cache[0] is not None:
            for one in cache:
                one.padding = padding
        offset = (
            getattr(cache[0], "offset", 0) if cache[0] is not None else 0 if padding is None else -padding
        )
        x = self.embedding(tokens, offset)
        masks = {}
        for layer, window, one in zip(self.layers, self.windows, cache, strict=True):
            if window not in masks:
                masks[window] = self.mask(tokens.shape[1], window, one, padding, prefix)
            x = layer(x, masks[window], one, **source)
        return self.norm(x) if "norm" in self else x

    def mask(self, queries, window, cache, padding, prefix):
        """The mask of the layers with this window: None, "causal", (T, S), (B, 1, T, S), or (B, T) if recurrent."""
        if cache is None:
            length = start = 0
        elif hasattr(cache, "make_mask"):  # one of mlx-lm's, which makes its own
            if window == RECURRENT:
                return cache.make_mask(queries)
            return cache.make_mask(queries, return_array=False, window_size=window)
        else:
            length, start, padding = cache.length, cache.start(queries), cache.padding
        if window == RECURRENT:
            return token_columns(queries, length=length, padding=padding)
        seen = attention_mask(
            queries,
            length=length,
            start=start,
            causality=self.spec.causality,
            window=window,
            padding=padding,
            prefix=prefix,
        )
        return biased(seen, self.relative(queries, length, start)) if "relative" in self else seen

    def __call__(self, tokens, cache=None, mask=None, prefix=None):  # (B, T) -> (B, T, V)
        return self.head(self.backbone(tokens, cache, mask, prefix))


def _window(layer):
    """The window of the mixer in a layer's spec, None when it sees everything, `RECURRENT` for a state."""
    if any(getattr(part, "recurrent", False) for _, part in layer.walk()):
        return RECURRENT
    return next((part.window for _, part in layer.walk() if getattr(part, "window", None)), None)


def _caching(layer):
    """The module within a layer that makes its cache: the mixer, wherever the layer keeps it; None without one."""
    return next((module for _, module in layer.named_modules() if hasattr(module, "make_cache")), None)


def refuse_without_cache(specs, layers):
    """RecipeError naming the layer, and the block in it, that says nothing of what it keeps from token to token."""
    for index, (spec, layer) in enumerate(zip(specs, layers, strict=True)):
        if _caching(layer) is None:
            mixers = ((path, part) for path, part in spec.walk() if part.kind == "mixer")
            path, part = next(mixers, ("", spec))
            where = f"layers.{index}.{path}".rstrip(".")
            raise RecipeError(
                f"{where}: {part.block()} has no make_cache(policy), which gives what it keeps from token to token"
            )
