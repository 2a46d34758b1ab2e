"""A model of mlx-lm behind the zoo's protocol, and its caches, going back as the zoo's do.

Axes: B batch, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

from zoo.blocks.model import Model, Side
from zoo.cache import Cache, CachePolicy
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.checkpoint.quantized_tensors import gather_mlx
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, PromptError
from zoo_mlx_lm.network import failure, make
from zoo_mlx_lm.spec import Bridged


class BridgedDecoder(Model, nn.Module):
    """A model of mlx-lm, `network`, with mlx-lm's caches. It includes its head: `backbone` gives logits already."""

    padding = frozenset[Side]()  # see `backbone`
    # A prompt's last token is read by itself, since the head runs on all tokens of a pass.
    last_chunk = 1

    def __init__(self, spec: Bridged, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.network = make(spec.module, spec.config)

    @property
    def layers(self) -> list[Any]:
        """mlx-lm's own."""
        return self.network.layers

    def make_cache(self, policy: CachePolicy | None = None) -> list[Any]:
        """mlx-lm's caches."""
        from mlx_lm.models.cache import make_prompt_cache

        try:
            return make_prompt_cache(self.network)
        except Exception as error:
            raise failure(self.spec.module, "has no cache with these settings", error) from error

    def refused(self, caches: Iterable[Any], policy: CachePolicy) -> str | None:
        """mlx-lm bounds and packs caches by definitions of its own, which differ from the zoo's."""
        setting = "max_kv_size" if policy.max_size is not None else "kv_bits"
        return None if policy.plain else f"`{setting}`: mlx-lm::{self.spec.module} makes caches of its own"

    def select(self, caches: Iterable[Any], rows: mx.array) -> None:
        """Keep these rows of the batch, (B,), in mlx-lm's caches, whose arrays all have the batch first."""
        from mlx_lm.models.cache import CacheList

        def chosen(leaf: Any) -> Any:
            return leaf[rows] if isinstance(leaf, mx.array) else leaf

        for cache in caches:
            if isinstance(cache, CacheList):
                self.select(cache.caches, rows)
                continue
            for name, value in vars(cache).items():
                setattr(cache, name, tree_map(chosen, value))

    def plain_caches(self, caches: Iterable[Any]) -> list[Any]:
        """mlx-lm's caches, each with what it needs to go back; those of a `CacheList` in its place."""
        from mlx_lm.models.cache import CacheList

        found: list[Any] = []
        for cache in caches:
            found += self.plain_caches(cache.caches) if isinstance(cache, CacheList) else [Rewound(cache)]
        return found

    def backbone(
        self,
        tokens: mx.array | None = None,
        cache: list[Any] | None = None,
        mask: mx.array | None = None,
        prefix: int | mx.array | None = None,
        inputs_embeds: mx.array | None = None,
    ) -> mx.array:  # (B, T) -> (B, T, V)
        """The logits. Padded rows are refused: each of mlx-lm's models would need a mask of its own kind."""
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

    def head(self, logits: mx.array) -> mx.array:
        """The logits as they are: `network` includes the head."""
        return logits

    def __call__(self, *inputs: Any, **options: Any) -> mx.array:  # (B, T) -> (B, T, V)
        """The logits, as `backbone` returns them."""
        return self.backbone(*inputs, **options)

    def sanitize(self, tensors: Tensors) -> Tensors:
        """A checkpoint's tensors renamed and joined by mlx-lm's own code, which may settle what the model holds."""
        arrays = dict(tensors.arrays)
        for name in [name for name, tensor in arrays.items() if isinstance(tensor, QuantizedMatrix)]:
            arrays |= mlx_lm_arrays(name, arrays.pop(name))
        try:
            arrays = self.network.sanitize(arrays) if hasattr(self.network, "sanitize") else arrays
        except Exception as error:
            what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
            raise CheckpointError(f"mlx-lm::{self.spec.module} cannot take these tensors: {what}") from error
        return gather_mlx(replace(tensors, arrays=arrays))

    def quantizes(self, path: str, quantization: QuantizationSpec) -> QuantizationSpec | None:
        inside = path.removeprefix("network.")
        layer = self.network
        for step in inside.split("."):
            layer = layer[int(step)] if isinstance(layer, list) else layer[step]
        if "mode" not in signature(layer.to_quantized).parameters:
            return None  # nor can mlx-lm quantize it
        choose = getattr(self.network, "quant_predicate", None)  # not all models have one
        chosen = True if choose is None else choose(inside, layer)
        if isinstance(chosen, dict):
            group = quantization.group_size if quantization.mode == "affine" else 64
            own: dict[str, Any] = {"bits": quantization.bits, "group_size": group, "mode": "affine"}
            asked = own | chosen
            return QuantizationSpec(asked["bits"], asked["group_size"], asked["mode"])
        return quantization if chosen else None


def mlx_lm_arrays(name: str, packed: QuantizedMatrix) -> dict[str, Any]:
    """The arrays of a packed matrix by mlx-lm's names; its numbers where the quantization has what mlx-lm does not know."""
    if packed.global_scale is not None or packed.permutation is not None:
        return {name: packed.dequantize()}
    owner = name.removesuffix("weight")
    return {owner + part: array for part, array in packed.parts().items()}


class Rewound(Cache):
    """One of mlx-lm's caches: it is trimmed, or put back by its `state`, all that mlx-lm saves of it."""

    restores = True  # type: ignore[assignment]

    def __init__(self, cache: Any) -> None:
        from mlx_lm.models.cache import ConcatenateKVCache, KVCache, QuantizedKVCache

        self.cache = cache
        # Those that can always be trimmed; a rotating one only until it is full.
        self.trims = type(cache) in (KVCache, QuantizedKVCache, ConcatenateKVCache)

    def trim(self, count: int) -> None:
        """Forget the last `count` tokens."""
        self.cache.trim(count)

    def snapshot(self, row: int = 0) -> Any:
        """Its state, which nothing changes that the cache does later."""
        return _apart(self.cache.state)

    def restore(self, snapshot: Any) -> None:
        """Become what the snapshot was taken of, which stays as it is."""
        self.cache.state = _apart(snapshot)


def _apart(state: Any) -> Any:
    """The same arrays as objects of their own: an assignment to a part of one does not reach the other."""
    return tree_map(lambda leaf: mx.array(leaf) if isinstance(leaf, mx.array) else leaf, state)
