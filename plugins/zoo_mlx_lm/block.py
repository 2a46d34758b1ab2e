"""A model of mlx-lm behind the zoo's protocol, its caches, which go back as the zoo's do, and its recipe.

The second part says which of mlx-lm's modules runs a config with which settings, makes the model, and reads the sizes of
its recipe off it, of which nothing is evaluated. Axes: B batch, T length, V vocabulary, H heads, K width of a head.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from inspect import signature
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

from zoo.blocks.model import Model, Side
from zoo.cache import Cache, CachePolicy
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.checkpoint.quantized_tensors import gather_mlx
from zoo.checkpoint.safetensors import Tensors
from zoo.config import MOST_LAYERS
from zoo.errors import CheckpointError, ConfigError, PromptError
from zoo.runtime.lazy_packages import import_lazily
from zoo_mlx_lm.spec import Bridged
from zoo_mlx_lm.spelling import SOURCES, is_translated, older_keys


class BridgedDecoder(Model, nn.Module):
    """A model of mlx-lm, `network`, with mlx-lm's caches. It includes its head: `backbone` returns logits already."""

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

        plain: list[Any] = []
        for cache in caches:
            plain += self.plain_caches(cache.caches) if isinstance(cache, CacheList) else [Rewound(cache)]
        return plain

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
            packed, owner = arrays.pop(name), name.removesuffix("weight")
            if packed.global_scale is None and packed.permutation is None:
                arrays |= {owner + part: array for part, array in packed.parts().items()}
            else:  # which mlx-lm does not know
                arrays[name] = packed.dequantize()
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


# What mlx-lm's code loops over: layers, experts, passes.
COUNTS = re.compile(r"(?:^|_)(?:num|n|moe|loops?|layers?|experts?|iters?)(?:_|$)")
MOST_PARTS = 65_536
# Of training and of classifiers, in the configs of one family or another.
UNUSED = (
    *("init_std", "initializer_factor", "pretraining_tp", "max_sequence_length", "reorder_and_upcast_attn"),
    *("dropout", "dropout_rate", "attention_probs_dropout_prob", "hidden_dropout_prob"),
    *(f"{part}_dropout" for part in ("attention", "hidden", "activation", "classifier")),
    *(f"{part}_pdrop" for part in ("embd", "attn", "resid")),
    *(f"summary_{part}" for part in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")),
    *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"),
)
# What its code divides by: on a CPU a whole number divided by zero ends the process.
DIVISORS = re.compile(r"(?:^|_)(?:heads?|groups?)$|^head_dim$|kv_heads|_head_kv|_groups_")
# Widths, which the tensors of a checkpoint have too.
SIZES = re.compile(
    r"size|dim|hidden|width|rank|channels|heads?$|n_embd|d_model|d_ssm|d_state|d_inner|d_conv|kernel"
)
MOST_SIZE = 2**24
SLACK = 64  # times the widest tensor, which may be packed, or a part of a size


def module_of(model_type, architectures):
    """The module of `mlx_lm.models` for a model_type, by mlx-lm's own tables of aliases."""
    utils = import_module("mlx_lm.utils")
    named = architectures if isinstance(architectures, list) else [architectures]
    exact = getattr(utils, "MODEL_ARCHITECTURE_REMAPPING", {})
    found = (exact.get((model_type, name)) for name in named if isinstance(name, str))
    return next(filter(None, found), utils.MODEL_REMAPPING.get(model_type, model_type))


def text_module_of(model_type, modules):
    """The module that runs a text model of which transformers 5 writes the text_config as the whole config; None without one."""
    name = model_type.removesuffix("_text")
    return name if name != model_type and name in modules else None


def settings_of(module, config):
    """The keys of a config that a model's ModelArgs takes; ConfigError for one that is missing or out of bounds."""
    arguments = classes(module)[1]
    common = import_module("mlx_lm.models.base").BaseModelArgs.from_dict
    own = arguments.from_dict.__func__ is not common.__func__  # it reads the config its own way
    fields = dataclasses.fields(arguments)
    config.ignore(*UNUSED)
    settings = {}
    for key in dict.fromkeys([*(field.name for field in fields), *(config if own else ())]):
        if key in config or config.is_null(key):
            settings[key] = decoded(config.get(key))
    known = argument_names(module)
    if (text := settings.get("text_config")) and isinstance(text, dict):
        settings["text_config"] = older_keys(text, known, "text_config.") | text
    values = config.peek()
    for key, value in older_keys(values, {field.name for field in fields}).items():
        settings[key] = value
        config.note(key, value)
        config.ignore(*SOURCES.get(key, ()))
    if is_translated(values.get("rope_parameters"), settings):
        config.ignore("rope_parameters")
    for field in fields:
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and not own and field.name not in settings:
            config[field.name]  # says that it is missing
    widest = config.widest()
    bound(settings, MOST_SIZE if widest is None else min(MOST_SIZE, SLACK * max(widest, 1)))
    return settings


def argument_names(module):
    """The fields of a module's classes of arguments: of the whole model, and of a text model within it."""
    parts = vars(sys.modules[classes(module)[1].__module__]).values()
    kinds = [part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)]
    return {field.name for kind in kinds for field in dataclasses.fields(kind)}


def decoded(value):
    """A setting whose {"__float__": "Infinity"}, which JSON cannot write as numbers, became floats."""
    if isinstance(value, dict):
        if set(value) == {"__float__"} and value["__float__"] in ("Infinity", "-Infinity", "NaN"):
            return float(value["__float__"])
        return {key: decoded(inner) for key, inner in value.items()}
    return [decoded(inner) for inner in value] if isinstance(value, list) else value


def bound(settings, most, path=""):
    """ConfigError for numbers with which mlx-lm's code would loop for ever, divide by zero or run out of memory.

    `most` is the largest size that the tensors can have.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            bound(value, most, f"{path}{key}.")
        for number in value if isinstance(value, list) else [value]:
            if type(number) is not int:
                continue
            if COUNTS.search(key) and "size" not in key:
                check(f"{path}{key}", number, -MOST_PARTS, MOST_LAYERS if "layer" in key else MOST_PARTS)
            if DIVISORS.search(key):
                check(f"{path}{key}", number, 1, MOST_PARTS)
            if SIZES.search(key):
                check(f"{path}{key}", number, -1, most)  # some write -1 for none


def check(key, number, least, most):
    """ConfigError unless a number lies within bounds."""
    if number < least:
        raise ConfigError(f"config.json: {key} {number} must be at least {least}")
    if number > most:
        raise ConfigError(f"config.json: {key} {number} must be at most {most}")


def classes(module):
    """The Model and ModelArgs of a module, imported now; ConfigError when mlx-lm cannot."""
    try:
        with redirect_stdout(sys.stderr):
            import_lazily("mlx_lm")
            found = import_module(f"mlx_lm.models.{module}")
        return found.Model, found.ModelArgs
    except (Exception, SystemExit) as error:  # one exits when a package of its own is missing
        raise failure(module, "cannot be imported", error) from error


def make(module, settings):
    """The model of these settings, its weights random and unevaluated; ConfigError when mlx-lm does not take them."""
    model, arguments = classes(module)
    try:
        # A copy, since some models change it.
        network = model(arguments.from_dict(json.loads(json.dumps(settings))))
        network.eval()
        return network
    except Exception as error:
        raise failure(module, "cannot be made of these settings", error) from error


def failure(module, what, error):
    """A ConfigError that says in one line what went wrong in mlx-lm."""
    message = " ".join(str(error).split())[:200]
    return ConfigError(f"mlx-lm::{module} {what} ({type(error).__name__}{f': {message}' if message else ''})")


def recipe_of(module, config):
    """The `Bridged` of a config; ConfigError in one line when mlx-lm cannot make or run it."""
    config.refuse("model_file", why="names code of the checkpoint, which is never run")
    settings = settings_of(module, config)
    network = make(module, settings)
    vocab, token_numbers, state_numbers = measured(network, module)
    inside = settings.get("text_config")
    keys = {**settings, **(inside if isinstance(inside, dict) else {})}
    context = keys.get("max_position_embeddings") or keys.get("n_positions")
    tables = [part.weight.shape for part in network.modules() if isinstance(part, nn.Embedding)] or [(1, 1)]
    return Bridged(
        module=module,
        settings=json.dumps(settings),
        vocab=vocab or tables[0][0],
        dim=keys.get("hidden_size") or tables[0][1],
        depth=len(network.layers),
        parameter_count=sum(array.size for _, array in tree_flatten(network.parameters())),
        token_numbers=token_numbers,
        state_numbers=state_numbers,
        context=context,
        positions=context if any(rows == context for rows, _ in tables[1:]) else None,
    )


class _Seen(Exception):
    """All shapes are known."""


def measured(network, module):
    """The vocabulary, and how many numbers are cached for each token and at any length.

    They follow from the shapes of two steps, which are never computed. A model that reads values while it runs cannot
    be followed to its end: it has no vocabulary here, and the layers not reached are taken to be like those that were.
    """
    steps = []
    for length in (1, 2):
        vocab, caches = shapes(network, module, length)
        reached = [sizes for cache in caches if any(sizes := numbers(cache))]
        token, rest = (sum(column) for column in zip(*reached, strict=True)) if reached else (0, 0)
        share = len(caches) / len(reached) if vocab is None and reached else 1
        steps.append((token * share, rest * share))
    growth = steps[1][1] - steps[0][1]
    return vocab, int(steps[0][0] + growth), int(steps[0][1] - growth)


def shapes(network, module, length):
    """The width of the logits, and the caches, after a step of `length` tokens of which only shapes are known."""
    from mlx_lm.models.cache import make_prompt_cache

    caches: list[Any] = []
    vocab = None

    def step(tokens):  # (1, T)
        nonlocal vocab
        vocab = network(tokens, cache=caches).shape[-1]
        raise _Seen

    try:
        caches = make_prompt_cache(network)
        # Within a function that is being compiled an array has a shape and no value.
        mx.compile(step)(mx.zeros((1, length), dtype=mx.int32))
    except _Seen:
        pass
    except Exception as error:
        if "[eval]" not in str(error):
            raise failure(module, "does not run with these settings", error) from error
    return vocab, caches


def numbers(cache):
    """The numbers that one of mlx-lm's caches holds for each token, and besides."""
    from mlx_lm.models.cache import CacheList

    if isinstance(cache, CacheList):
        parts = [numbers(part) for part in cache.caches]
        return tuple(sum(column) for column in zip(*parts, strict=True)) if parts else (0, 0)
    arrays = {name: array for name, array in tree_flatten(vars(cache)) if isinstance(array, mx.array)}
    buffers = [arrays.pop(name) for name in ("keys", "values") if name in arrays]  # (1, H, room, K)
    token = sum(array.shape[1] * array.shape[3] for array in buffers)
    return token, sum(array.size for array in arrays.values())
