"""A decoder-only model: embedding, layers, final norm, head.

Axes: B batch, T length, S cached and new, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from inspect import signature
from typing import Any

import mlx.core as mx

from zoo import recipe
from zoo.blocks.layer import CachedLayer, cache_of_parts, layer_inputs
from zoo.blocks.mask import Mask, attention_mask, biased
from zoo.blocks.model import MakesCache, Tower
from zoo.blocks.position import AngleRanges
from zoo.cache import CachePolicy, KVCache, PaddingCache, WindowCache, refused
from zoo.errors import PluginError, PromptError
from zoo.recipe.models import RECURRENT, Chunks, Memory, kv_widths


class Decoder(Tower):
    """Tokens to logits. The model makes the masks, one for each distinct window among its layers.

    Attention is called with what its queries may see (None, "causal" or an array, see `zoo.blocks.mask`). A part whose
    spec is `recurrent` attends to no keys but carries a state from column to column: it is called with the columns that
    hold a token, (B, T) booleans, or None when all do. Where one is false, on the left of a row (or, with another
    library's caches, on the right of a prompt), the state must stay as if the column were not there.

    What each layer is called with is declared by its spec (`zoo.recipe.models`): the mask and the cache of its one
    mixer, or masks and caches by the names of its parts; and `passed`, the values that layers give to later ones.
    """

    spec: recipe.Decoder

    def __init__(self, spec: recipe.Decoder, **parts: Any) -> None:
        super().__init__(spec, **parts)
        if spec.causality != "full":  # where every token sees every other, nothing can be cached
            self.make_cache()  # RecipeError for a layer that cannot

    @cached_property
    def angles(self) -> AngleRanges:  # type: ignore[override]
        """The lengths of text at which the angles of its positions change."""
        return AngleRanges.of(self)

    @cached_property
    def position_cache(self) -> tuple[int, int] | None:
        """The layer, and the index among its caches, that the position is read from; attention's if there is any."""
        caches = [
            (layer_index, index, memory.recurrent)
            for layer_index, (layer, need) in enumerate(zip(self.layers, self.needs, strict=True))
            for index, memory in enumerate(need.memories)
            if need.caches or (isinstance(layer, MakesCache) and not isinstance(layer, CachedLayer))
        ]
        return next((cache[:2] for cache in caches if not cache[2]), caches[0][:2] if caches else None)

    def make_cache(self, policy: CachePolicy | None = None) -> list[Any]:
        """One cache a layer: its own, that of its mixer, or a `LayerCache` where parts have their own."""
        layers = enumerate(zip(self.layers, self.spec.layers, self.needs, strict=True))
        return [
            layer.make_cache(policy)
            if isinstance(layer, MakesCache)
            else cache_of_parts(layer, spec, need, policy, f"layers.{index}")
            for index, (layer, spec, need) in layers
        ]

    def refused(self, caches: Iterable[Any], policy: CachePolicy) -> str | None:
        """The reason why its caches cannot follow a policy, naming the setting and, for a width, the part; None when they can."""
        if reason := refused(caches, policy):
            return reason
        mixers = (layer.get("mixer", {}) for layer in self.layers)
        if policy.max_size is not None and any("relative" in part for part in (self, *mixers)):
            return "`max_kv_size`: the bias of this model's scores counts on every token's key"
        for index, layer in enumerate(self.spec.layers):
            for path, widths in kv_widths(layer, self.spec.dim, f"layers.{index}"):
                if reason := policy.width_mismatch(widths):
                    return f"{reason} ({path})"
        return None

    def backbone(
        self,
        tokens: mx.array | None,
        cache: list[Any] | None = None,
        mask: mx.array | None = None,
        prefix: int | mx.array | None = None,
        inputs_embeds: mx.array | None = None,
        **source: Any,
    ) -> mx.array:  # (B, T) -> (B, T, D)
        """Everything but the head. `mask` (B, T), 1 for a token, marks left padding, at the first call only.

        `prefix`: under "prefix" causality, how many tokens from the left see each other both ways. `inputs_embeds`
        (B, T, D), in place of tokens, are their vectors as the embedding scales them, before positions. `source` goes
        to every layer: what the cross-attention of an encoder-decoder needs.
        """
        # The left padding of each row, (B,).
        padding = None if mask is None else mask.shape[1] - mask.astype(mx.int32).sum(axis=1)
        if (
            not cache and padding is not None
        ):  # rows are read once: caches of the padding alone, where plain ones would be
            plain = (KVCache, WindowCache)
            cache = [PaddingCache() if type(own) in plain else None for own in self.make_cache()]
        cache = cache or [None] * len(self.layers)
        for kept in cache if padding is not None else ():
            if kept is not None:
                kept.padding = padding
        x, passed = self.embed(tokens, self.offset(cache, padding), inputs_embeds)  # (B, T, D)
        masks: dict[Any, Mask] = {}

        def mask_of(memory: Memory, cache: Any) -> Mask:
            kind = memory.mask_kind
            if kind not in masks:
                masks[kind] = self.mask(x.shape[1], kind, cache, padding, prefix)
            return masks[kind]

        for index, (layer, need, kept) in enumerate(zip(self.layers, self.needs, cache, strict=True)):
            more = {"passed": passed, **source} if need.gives or need.takes else source
            layer_mask, kept = layer_inputs(need, kept, mask_of)
            x = layer(x, layer_mask, kept, **more)
            if need.gives:
                _check_given(f"layers.{index}", self.spec.layers[index], passed)
        return self.norm(x) if "norm" in self else x

    def embed(
        self, tokens: mx.array | None, offset: int | mx.array, inputs_embeds: mx.array | None = None
    ) -> tuple[mx.array, dict[str, Any]]:
        """The input of the first layer, (B, T, D), and the values that the embedding gives to layers."""
        spec = self.spec.embedding
        inputs: dict[str, Any] = {}
        passed: dict[str, Any] = {}
        if (tokens is None) == (inputs_embeds is None):
            raise PromptError("inputs_embeds: give either these or tokens")
        if inputs_embeds is not None:
            if "inputs_embeds" not in signature(type(self.embedding).__call__).parameters:
                raise PromptError(f"inputs_embeds: {spec.block()} is made of tokens, and takes no vectors")
            if inputs_embeds.ndim != 3 or inputs_embeds.shape[2] != spec.dim:
                raise PromptError(f"inputs_embeds: expected (B, T, {spec.dim}), got {inputs_embeds.shape}")
            inputs["inputs_embeds"] = inputs_embeds
        if spec.gives:
            inputs["passed"] = passed
        x = self.embedding(tokens, offset, **inputs)
        _check_given("embedding", spec, passed)
        return x, passed

    def offset(self, cache: list[Any], padding: mx.array | None) -> int | mx.array:
        """The position of the first new token, a number or (B,)."""
        if cache[0] is None:
            return 0 if padding is None else -padding
        if self.position_cache is None:
            return 0
        layer, index = self.position_cache
        kept = list(cache[layer])[index] if self.needs[layer].by_part else cache[layer]
        return kept.offset

    def mask(
        self, queries: int, kind: Any, cache: Any, padding: mx.array | None, prefix: int | mx.array | None
    ) -> Mask:
        """The mask of the parts of a kind (`Memory.mask_kind`): None, "causal", (T, S), (B, 1, T, S), or (B, T) if recurrent."""
        length = start = 0
        if cache is not None:
            length, start, padding = cache.length, cache.start(queries), cache.padding
        if kind == RECURRENT:
            if cache is not None and length >= cache.most_padding:
                return None  # no new column is padding
            # Which of the new columns hold a token, (B, T); None when no row is padded.
            return None if padding is None else mx.arange(length, length + queries)[None] >= padding[:, None]
        chunked = isinstance(kind, Chunks)
        mask = attention_mask(
            queries,
            length=length,
            start=start,
            causality=self.spec.causality,
            window=kind.width if chunked else kind,
            chunked=chunked,
            padding=padding,
            prefix=prefix,
            bound=None if cache is None else cache.bound,
        )
        return biased(mask, self.relative(queries, length, start)) if "relative" in self else mask

    def __call__(
        self,
        tokens: mx.array | None = None,
        cache: list[Any] | None = None,
        mask: mx.array | None = None,
        prefix: int | mx.array | None = None,
        inputs_embeds: mx.array | None = None,
    ) -> mx.array:  # (B, T) -> (B, T, V)
        """Logits of `tokens`, or, in their place, of `inputs_embeds` (B, T, D)."""
        return self.head(self.backbone(tokens, cache, mask, prefix, inputs_embeds))


def _check_given(path: str, spec: recipe.Spec, passed: dict[str, Any]) -> None:
    for name in spec.gives:
        if name not in passed:
            raise PluginError(f"{path}: {spec.block()} says that it gives {name!r}, and did not")
