"""A decoder-only model: embedding, layers, final norm, head.

Axes: B batch, T length, S cached and new, D width, V vocabulary.
"""

from functools import cached_property
from inspect import signature

import mlx.nn as nn

from zoo.blocks.caching import by_part, has_cache, layer_cache
from zoo.blocks.mask import attention_mask, biased, padded_columns, token_columns
from zoo.blocks.model import Model
from zoo.cache import Cache, KVCache, LayerCache, UnkeptCache, WindowCache
from zoo.errors import PluginError, PromptError
from zoo.recipe.memory import needs

RECURRENT = "recurrent"


class Decoder(Model, nn.Module):
    """Tokens to logits. The model makes the masks, one for each distinct window among its layers.

    Attention gets what its queries may see (None, "causal" or an array, see `zoo.blocks.mask`). A part whose
    spec is `recurrent` sees no keys but carries a state from column to column: it gets
    which columns hold a token, (B, T) booleans, or None when all do. Where one is false, on the left of a row (or,
    with mlx-lm's caches, on the right of a prompt), the state must stay as if the column were not there.

    What each layer is handed is read off its spec (`zoo.recipe.memory`): the mask and the cache of its one mixer, or
    masks and caches by the names of its parts; and `passed`, the values that layers give to later ones.
    """

    def __init__(self, spec, *, dim, index=0, embedding, layers, head, norm=None, relative=None):
        super().__init__()
        self.spec = spec
        self.embedding = embedding
        self.layers = layers
        if spec.causality != "full":  # where all tokens see each other, nothing need be kept
            self.make_cache()  # RecipeError for a layer that cannot
        if norm is not None:
            self.norm = norm
        self.head = head
        head.tie(embedding)
        if relative is not None:
            self.relative = relative

    @cached_property
    def needs(self):
        """What each layer has to be handed."""
        known = {id(layer): needs(layer) for layer in self.spec.layers}
        return [known[id(layer)] for layer in self.spec.layers]

    @cached_property
    def clock(self):
        """The layer, and the place among its caches, that the position is read from; attention's if there is any."""
        every = [
            (index, place, memory.recurrent)
            for index, (layer, need) in enumerate(zip(self.layers, self.needs, strict=True))
            for place, memory in enumerate(need.memories)
            if has_cache(layer, need)
        ]
        return next((one[:2] for one in every if not one[2]), every[0][:2] if every else None)

    def make_cache(self, policy=None):
        """One cache a layer: its own, that of its mixer, or a `LayerCache` where parts have their own."""
        layers = enumerate(zip(self.layers, self.spec.layers, self.needs, strict=True))
        return [
            layer_cache(layer, spec, need, policy, f"layers.{index}") for index, (layer, spec, need) in layers
        ]

    def unkept(self):
        """What tells the layers where padded rows begin when no cache does, where a mixer's own is a plain one."""
        plain = (KVCache, WindowCache)
        return [UnkeptCache() if type(one) in plain else None for one in self.make_cache()]

    def backbone(self, tokens, cache=None, mask=None, prefix=None, inputs_embeds=None, **source):
        """Everything but the head, (B, T) -> (B, T, D). `mask` (B, T), 1 for a token, marks left padding, at the
        first call only.

        `prefix`: under "prefix" causality, how many tokens from the left see each other both ways. `inputs_embeds`
        (B, T, D), in the place of tokens, are their vectors as the embedding scales them, before positions. `source`
        goes to every layer: what those of an encoder-decoder look at.
        """
        padding = None if mask is None else padded_columns(mask)
        cache = cache or ([None] * len(self.layers) if padding is None else self.unkept())
        for one in cache if padding is not None else ():
            if one is not None:
                one.padding = padding
        x, passed = self.embed(tokens, self.offset(cache, padding), inputs_embeds)  # (B, T, D)
        masks = {}

        def seen(memory, one):
            kind = RECURRENT if memory.recurrent else memory.window
            if kind not in masks:
                masks[kind] = self.mask(x.shape[1], kind, one, padding, prefix)
            return masks[kind]

        for index, (layer, need, one) in enumerate(zip(self.layers, self.needs, cache, strict=True)):
            more = {"passed": passed, **source} if need.gives or need.takes else source
            if need.by_part:
                one = by_part(need, one)
                shown = {memory.path: seen(memory, one[memory.path]) for memory in need.memories}
            elif need.caches or not isinstance(one, LayerCache) or one.parts:
                shown = seen(need.memories[0], one)
            else:  # it remembers nothing, and no cache of its own says how long the text is
                shown = None
            x = layer(x, shown, one, **more)
            if need.gives:
                _check_given(f"layers.{index}", self.spec.layers[index], passed)
        return self.norm(x) if "norm" in self else x

    def embed(self, tokens, offset, inputs_embeds=None):
        """What enters the first layer, (B, T, D), and the values that the embedding gives to layers."""
        spec, inputs, passed = self.spec.embedding, {}, {}
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

    def offset(self, cache, padding):
        """The position of the first new token, a number or (B,)."""
        if cache[0] is None:
            return 0 if padding is None else -padding
        if self.clock is None:
            return 0
        layer, place = self.clock
        need, one = self.needs[layer], cache[layer]
        one = list(one)[place] if need.by_part else one
        if isinstance(one, Cache) or not need.memories[place].recurrent:
            return one.offset
        if self.spec.embedding.positions is not None:
            raise PromptError("mlx-lm's caches of states hold no position, which the embedding adds")
        return 0

    def mask(self, queries, window, cache, padding, prefix):
        """The mask of the layers with this window: None, "causal", (T, S), (B, 1, T, S), or (B, T) if recurrent."""
        if cache is None:
            length = start = 0
        elif not isinstance(cache, Cache):  # one of mlx-lm's, which makes its own
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

    def __call__(self, tokens=None, cache=None, mask=None, prefix=None, inputs_embeds=None):
        """Logits, (B, T) -> (B, T, V); or, in the place of tokens, of `inputs_embeds` (B, T, D)."""
        return self.head(self.backbone(tokens, cache, mask, prefix, inputs_embeds))


def _check_given(where, spec, passed):
    for name in spec.gives:
        if name not in passed:
            raise PluginError(f"{where}: {spec.block()} says that it gives {name!r}, and did not")
