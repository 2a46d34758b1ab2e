"""The zoo's decoders under mlx-lm's own tools: its `generate`, `batch_generate`, server and LoRA trainer.

    from mlx_lm import generate
    from zoo_mlx_lm.tools import load
    model, tokenizer = load("llama")
    generate(model, tokenizer, prompt="The capital city of China is", max_tokens=5)

On the command line, `python -m zoo_mlx_lm.tools TOOL …` runs one of mlx-lm's commands with this `load`.

Axes: B batch, T length, V vocabulary.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.nn as nn

from zoo import cache as zoo_cache
from zoo.errors import PluginError, PromptError, TokenizerError, ZooError, in_words
from zoo.loading import Loaded
from zoo.loading import load as load_model
from zoo.recipe.models import RECURRENT, Chunks, Memory

# mlx-lm's commands that only run or train what they load; others write files by the names of its own models.
TOOLS = ("generate", "chat", "server", "lora", "cache_prompt", "benchmark")


def load(
    source: str | Path,
    tokenizer_config: Mapping[str, Any] | None = None,
    model_config: Mapping[str, Any] | None = None,
    adapter_path: str | Path | None = None,
    *,
    return_config: bool = False,
    trust_remote_code: bool = False,
    **settings: Any,
) -> Any:
    """A model and its tokenizer, in place of `mlx_lm.load`; `settings` are those of `zoo.load`.

    The model's linear layers are plain `nn.Linear`, so that LoRA finds them. `tokenizer_config` goes to transformers'
    tokenizer, which is mlx-lm's. With `return_config` the config comes third. A `ZooError` for what is no causal decoder,
    has no tokenizer that transformers reads, or asks for code of the checkpoint or another config than it has.
    """
    if trust_remote_code:
        raise ZooError("trust_remote_code: code of a checkpoint is never run")
    asked = next((key for key, value in (model_config or {}).items() if value), None)
    if asked:
        raise ZooError(f"model_config: {asked} is not implemented for the zoo's models")
    loaded = load_model(source, adapter=adapter_path, **settings)
    found = served(loaded), tokenizer(loaded, tokenizer_config)
    return (*found, loaded.config) if return_config else found


def served(loaded: Loaded) -> Any:
    """The model as mlx-lm's tools take one; its layers and parameters are those of `loaded.model`."""
    name = loaded.architecture.name
    if loaded.architecture.task != "generate" or loaded.architecture.causality != "causal":
        raise ZooError(f"{name}: mlx-lm's tools write text from left to right, which this model does not")
    model = Served(loaded.model, loaded.config, name)
    model.make_cache()  # which refuses what mlx-lm has no cache for, now and not at the first token
    return model.eval()


def tokenizer(loaded: Loaded, config: Mapping[str, Any] | None = None) -> Any:
    """mlx-lm's tokenizer of the folder that a model was loaded from; ends of a text are those that the zoo knows."""
    from mlx_lm import tokenizer_utils

    if not loaded.folder.is_dir():
        raise TokenizerError(f"{loaded.folder}: mlx-lm's tools need a folder with a tokenizer")
    ends = sorted(loaded.tokenizer.eos_ids) if loaded.tokenizer else None
    given = {**(config or {}), "trust_remote_code": False}
    try:
        return tokenizer_utils.load(loaded.folder, given, eos_token_ids=ends)
    except Exception as error:
        raise TokenizerError(
            f"{loaded.folder}: transformers reads no tokenizer ({in_words(error)})"
        ) from error


class Served(nn.Module):
    """A decoder under mlx-lm's protocol: its modules by the same names, so that their parameters keep their paths."""

    def __init__(self, model: Any, config: Mapping[str, Any], name: str) -> None:
        super().__init__()
        for part, module in model.items():
            self[part] = module
        decoder = copy(model)
        decoder.__class__ = type("Decoder", (WithMlxLmCaches, type(model)), {})
        # Behind a function: no module below this one, whose parameters there would be a second time.
        self._model = lambda: decoder
        self._quantized_cache = import_module("mlx_lm.models.cache").QuantizedKVCache
        self.args = SimpleNamespace(**config)
        self.model_type = config.get("model_type", name)

    @property
    def layers(self) -> Any:
        """The decoder's layers."""
        return self._model().layers

    def make_cache(self, policy: Any = None) -> list[Any]:
        """mlx-lm's caches, one a layer, of the kinds that the layers' mixers would make themselves."""
        return [counterpart(cache) for cache in self._model().make_cache(policy)]

    def __call__(  # (B, T) -> (B, T, V)
        self, tokens: Any, cache: Any = None, input_embeddings: Any = None, **inputs: Any
    ) -> Any:
        """`input_embeddings` (B, T, D), which mlx-lm gives besides tokens, take their place."""
        if cache and any(isinstance(layer_cache, self._quantized_cache) for layer_cache in cache):
            raise PromptError("kv_bits: a quantized cache is not implemented for the zoo's models")
        if cache:
            cache = [
                named(kept, need.memories) for kept, need in zip(cache, self._model().needs, strict=True)
            ]
        if input_embeddings is not None:
            tokens, inputs["inputs_embeds"] = None, input_embeddings
        return self._model()(tokens, cache, **inputs)


class WithMlxLmCaches:
    """The methods of a decoder that ask its caches, for mlx-lm's: these make their masks, and a state has no position."""

    def offset(self, cache: list[Any], padding: Any) -> Any:
        """The position of the first new token, a number or (B,); 0 where all caches are of states."""
        decoder: Any = self
        layer, index = decoder.position_cache or (0, 0)
        if cache[0] is None or not decoder.needs[layer].memories[index].recurrent:
            return super().offset(cache, padding)  # type: ignore[misc]
        if decoder.spec.embedding.positions is not None:
            raise PromptError("mlx-lm's caches of states hold no position, which the embedding adds")
        return 0

    def mask(self, queries: int, window: Any, cache: Any, padding: Any, prefix: Any) -> Any:
        """The mask of the layers with this window, as a decoder's own."""
        if cache is None:
            return super().mask(queries, window, cache, padding, prefix)  # type: ignore[misc]
        if window == RECURRENT:
            return cache.make_mask(queries)
        if isinstance(window, Chunks):  # within the first, what a token sees is a window's
            window = window.width
            if cache.offset + queries > window:
                raise PromptError("mlx-lm's caches know no chunks of tokens, which this text is longer than")
            if not hasattr(cache, "make_mask"):  # of its cache of chunks
                return "causal" if queries > 1 else None
        return cache.make_mask(queries, return_array=False, window_size=window)


def named(cache: Any, memories: Sequence[Memory]) -> Any:
    """mlx-lm's list of one layer's caches as a dictionary by part; any other cache unchanged."""
    from mlx_lm.models.cache import CacheList

    if not isinstance(cache, CacheList):
        return cache
    return zoo_cache.LayerCache(
        {memory.path: part for memory, part in zip(memories, cache.caches, strict=True)}
    )


def counterpart(cache: Any) -> Any:
    """mlx-lm's cache for this one, as its own class declares; PluginError for one that declares none.

    What a class inherits does not count: a cache that works another way needs another counterpart.
    """
    from mlx_lm.models.cache import CacheList

    if type(cache).__module__.startswith("mlx_lm."):
        return cache  # mlx-lm's own already
    if type(cache) is zoo_cache.LayerCache and cache.parts:
        return CacheList(*map(counterpart, cache.parts.values()))
    if "counterpart" not in vars(type(cache)):
        raise PluginError(
            f"mlx-lm has no counterpart of the cache {type(cache).__name__}, which declares none"
        )
    return cache.counterpart()


def main(arguments: list[str]) -> None:
    """Run one of mlx-lm's commands on the zoo's models: `server --model llama`."""
    if not arguments or arguments[0] not in TOOLS:
        sys.exit(f"usage: python -m zoo_mlx_lm.tools {{{','.join(TOOLS)}}} …")
    tool: Any = import_module(f"mlx_lm.{arguments[0]}")
    tool.load = load  # each calls it by this name
    sys.argv = [f"mlx_lm {arguments[0]}", *arguments[1:]]
    try:
        tool.main()
    except ZooError as error:
        sys.exit(f"zoo: error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
