"""Models as mlx-lm makes them: which module, which settings of a config, the model itself, and its recipe.

A recipe's sizes are read off the model, of which nothing is evaluated. Axes: T length, H heads, K width of a head.
"""

import dataclasses
import json
import re
import sys
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.config import MOST_LAYERS
from zoo.errors import ConfigError
from zoo_mlx_lm.spec import Bridged

# What mlx-lm's code loops over: layers, experts, passes.
COUNTS = re.compile(r"(?:^|_)(?:num|n|moe|loops?|layers?|experts?|iters?)(?:_|$)")
MOST_PARTS = 65_536
# Of training and of classifiers, in the configs of one family or another.
UNUSED = (
    *("init_std", "initializer_factor", "pretraining_tp", "max_sequence_length", "reorder_and_upcast_attn"),
    *(
        "dropout",
        "dropout_rate",
        "attention_dropout",
        "hidden_dropout",
        "activation_dropout",
        "classifier_dropout",
    ),
    *("attention_probs_dropout_prob", "hidden_dropout_prob", "embd_pdrop", "attn_pdrop", "resid_pdrop"),
    *(
        "summary_type",
        "summary_use_proj",
        "summary_activation",
        "summary_proj_to_labels",
        "summary_first_dropout",
    ),
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
    for field in fields:
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and not own and field.name not in settings:
            config[field.name]  # says that it is missing
    widest = config.widest()
    bound(settings, MOST_SIZE if widest is None else min(MOST_SIZE, SLACK * max(widest, 1)))
    return settings


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
    found = []
    for length in (1, 2):
        vocab, caches = shapes(network, module, length)
        reached = [sizes for cache in caches if any(sizes := numbers(cache))]
        token, rest = (sum(column) for column in zip(*reached, strict=True)) if reached else (0, 0)
        share = len(caches) / len(reached) if vocab is None and reached else 1
        found.append((token * share, rest * share))
    growth = found[1][1] - found[0][1]
    return vocab, int(found[0][0] + growth), int(found[0][1] - growth)


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
    found = {name: array for name, array in tree_flatten(vars(cache)) if isinstance(array, mx.array)}
    buffers = [found.pop(name) for name in ("keys", "values") if name in found]  # (1, H, room, K)
    token = sum(array.shape[1] * array.shape[3] for array in buffers)
    return token, sum(array.size for array in found.values())
