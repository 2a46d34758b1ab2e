"""A model of mlx-lm behind the zoo's protocol. Axes: B batch, T length, V vocabulary."""

from dataclasses import replace
from functools import partial
from inspect import signature

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from zoo.checkpoint.packed import Packed, Packing
from zoo.checkpoint.quantized import gather_mlx
from zoo.errors import CheckpointError, PromptError
from zoo_mlx_lm.network import failure, make


class BridgedDecoder(nn.Module):
    """`network`, of mlx-lm, with its own caches. It has its head within: `backbone` gives logits already."""

    pads = False  # see `backbone`
    # A prompt's last token is read by itself, since the head works on all that are read together.
    last_chunk = 1

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        self.network = make(spec.module, spec.config)

    @property
    def layers(self):
        """mlx-lm's own."""
        return self.network.layers

    def make_cache(self, policy=None):
        """mlx-lm's caches, with the one method more that a search by beams needs."""
        from mlx_lm.models.cache import make_prompt_cache

        try:
            caches = make_prompt_cache(self.network)
        except Exception as error:
            raise failure(self.spec.module, "has no cache with these settings", error) from error
        for cache in caches:
            cache.select = partial(select, cache)
        return caches

    def backbone(self, tokens, cache=None, mask=None, prefix=None, inputs_embeds=None):  # (B, T) -> (B, T, V)
        """The logits. Padded rows are refused: each of mlx-lm's models would have to be told of them its own way."""
        if mask is not None or prefix is not None:
            raise PromptError(f"mlx-lm::{self.spec.module} takes no padded rows and no prefix here")
        if inputs_embeds is not None:
            raise PromptError(f"inputs_embeds: mlx-lm::{self.spec.module} reads tokens only")
        # Without a cache some of them, which share keys between layers, compute something else.
        cache = cache or self.make_cache()
        try:
            return self.network(tokens, cache=cache)
        except Exception as error:
            raise failure(self.spec.module, "does not run with these settings", error) from error

    def head(self, logits):
        """The same: the head is within."""
        return logits

    def __call__(
        self, tokens=None, cache=None, mask=None, prefix=None, inputs_embeds=None
    ):  # (B, T) -> (B, T, V)
        return self.backbone(tokens, cache, mask, prefix, inputs_embeds)

    def sanitize(self, tensors):
        """A checkpoint's tensors renamed and joined by mlx-lm's own code, which may settle what the model holds."""
        arrays = dict(tensors.arrays)
        for name in [name for name, tensor in arrays.items() if isinstance(tensor, Packed)]:
            arrays |= apart(name, arrays.pop(name))
        try:
            arrays = self.network.sanitize(arrays) if hasattr(self.network, "sanitize") else arrays
        except Exception as error:
            what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
            raise CheckpointError(f"mlx-lm::{self.spec.module} cannot take these tensors: {what}") from error
        return gather_mlx(replace(tensors, arrays=arrays))

    def quantizes(self, path, packing):
        """The packing that mlx-lm gives the layer at `path` when `packing` is asked for; None keeps it whole."""
        inside = path.removeprefix("network.")
        layer = self.network
        for step in inside.split("."):
            layer = layer[int(step)] if isinstance(layer, list) else layer[step]
        if "mode" not in signature(layer.to_quantized).parameters:
            return None  # nor can mlx-lm quantize it
        choose = getattr(self.network, "quant_predicate", None)
        chosen = True if choose is None else choose(inside, layer)
        if isinstance(chosen, dict):
            group = packing.group_size if packing.mode == "affine" else 64
            asked = {"bits": packing.bits, "group_size": group, "mode": "affine"} | chosen
            return Packing(asked["bits"], asked["group_size"], asked["mode"])
        return packing if chosen else None


def apart(name, packed):
    """The arrays of a packed matrix by mlx-lm's names; its numbers where the packing has what mlx-lm does not know."""
    if packed.global_scale is not None or packed.permutation is not None:
        return {name: packed.dequantize()}
    owner = name.removesuffix("weight")
    return {owner + part: array for part, array in packed.parts().items()}


def select(cache, rows):
    """Keep these rows of the batch, (B,), in one of mlx-lm's caches, whose arrays all have the batch first."""

    def chosen(leaf):
        return leaf[rows] if isinstance(leaf, mx.array) else leaf

    for one in getattr(cache, "caches", ()):
        select(one, rows)
    for name, value in vars(cache).items():
        if name not in ("caches", "select"):
            setattr(cache, name, tree_map(chosen, value))
