"""Models as mlx-lm makes them: found, bounded, built, and measured without evaluating anything.

Axes: B batch (1), T length, H heads, K width of a head.
"""

import dataclasses
import json
import re
import sys
from contextlib import redirect_stdout
from importlib import import_module

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.config import MOST_LAYERS
from zoo.errors import ConfigError
from zoo_mlx_lm.spec import Bridged

# What is counted out one by one in mlx-lm's code: a list of layers, of experts, of passes.
COUNTS = re.compile(r"(?:^|_)(?:num|n|moe|loops?|layers?|experts?|iters?)(?:_|$)")
MOST_PARTS = 65_536


def module_of(model_type, architectures):
    """The module that mlx-lm runs a model_type with, by its own tables of other names."""
    utils = import_module("mlx_lm.utils")
    named = [architectures] if isinstance(architectures, str) else architectures or ()
    table = getattr(utils, "MODEL_ARCHITECTURE_REMAPPING", {})
    exact = (table.get((model_type, name)) for name in named if isinstance(name, str))
    return next(filter(None, exact), utils.MODEL_REMAPPING.get(model_type, model_type))


def told(module, config):
    """The `Bridged` of a config; ConfigError in one line when mlx-lm cannot make or run it."""
    config.refuse("model_file", why="names code of the checkpoint, which is never run")
    settings = settings_of(module, config)
    network = make(module, settings)
    inner = {**settings, **(settings.get("text_config") or {})}
    context = inner.get("max_position_embeddings") or inner.get("n_positions")
    tables = [part.weight.shape for part in network.modules() if isinstance(part, nn.Embedding)]
    vocab, token_numbers, state_numbers = measured(network, module)
    return Bridged(
        module=module,
        settings=json.dumps(settings),
        vocab=vocab or tables[0][0],
        dim=inner.get("hidden_size") or tables[0][1],
        depth=len(network.layers),
        held=sum(array.size for _, array in tree_flatten(network.parameters())),
        token_numbers=token_numbers,
        state_numbers=state_numbers,
        context=context,
        positions=context if any(rows == context for rows, _ in tables[1:]) else None,
    )


def settings_of(module, config):
    """The keys of a config that a model's ModelArgs takes; ConfigError for one that is missing or out of bounds."""
    arguments = classes(module)[1]
    fields = dataclasses.fields(arguments)
    own = "from_dict" in vars(arguments)  # reads the config its own way
    wanted = dict.fromkeys([*(one.name for one in fields), *(config if own else ())])
    settings = {}
    for key in wanted:
        if key in config or config.is_null(key):
            settings[key] = config.get(key)
    for one in fields:
        needed = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if needed and not own and one.name not in settings:
            config[one.name]  # says that it is missing
    bound(settings)
    return settings


def bound(settings, path=""):
    """ConfigError for a count that would take mlx-lm's code forever to count to."""
    for key, value in settings.items():
        if isinstance(value, dict):
            bound(value, f"{path}{key}.")
        elif type(value) is int and COUNTS.search(key):
            most = MOST_LAYERS if "layer" in key else MOST_PARTS
            if value > most:
                raise ConfigError(f"config.json: {path}{key} {value} must be at most {most}")


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
        # A copy: some write into what they are given.
        network = model(arguments.from_dict(json.loads(json.dumps(settings))))
        network.eval()
        return network
    except Exception as error:
        raise failure(module, "cannot be made of these settings", error) from error


def failure(module, what, error):
    """A ConfigError that tells in one line what went wrong in mlx-lm."""
    words = " ".join(str(error).split())[:200]
    return ConfigError(f"mlx-lm::{module} {what} ({type(error).__name__}{f': {words}' if words else ''})")


class _Seen(Exception):
    """All shapes are known."""


def measured(network, module):
    """The vocabulary, and how many numbers are cached for each token and at any length.

    Told by the shapes of two steps, which are never computed. A model that looks at values on its way cannot be
    followed to its end: it has no vocabulary here, and the layers not reached are taken to be like those that were.
    """
    found = []
    for length in (1, 2):
        vocab, caches = shapes(network, module, length)
        reached = [sizes for one in caches if any(sizes := numbers(one))]
        token, rest = (sum(column) for column in zip(*reached, strict=True)) if reached else (0, 0)
        share = len(caches) / len(reached) if vocab is None and reached else 1
        found.append((token * share, rest * share))
    growth = found[1][1] - found[0][1]
    return vocab, int(found[0][0] + growth), int(found[0][1] - growth)


def shapes(network, module, length):
    """The width of the logits, and the caches, after a step of `length` tokens of which only shapes are known."""
    from mlx_lm.models.cache import make_prompt_cache

    caches, vocab = make_prompt_cache(network), None

    def step(tokens):  # (1, T)
        nonlocal vocab
        vocab = network(tokens, cache=caches).shape[-1]
        raise _Seen

    try:
        # Within a function that is being compiled an array has a shape and no value.
        mx.compile(step)(mx.zeros((1, length), dtype=mx.int32))
    except _Seen:
        pass
    except Exception as error:
        if "[eval]" not in str(error):
            raise failure(module, "does not run with these settings", error) from error
    return vocab, caches


def numbers(cache):
    """How many numbers one of mlx-lm's caches holds for each token, and how many besides."""
    if hasattr(cache, "caches"):  # several in one
        parts = [numbers(one) for one in cache.caches]
        return tuple(sum(column) for column in zip(*parts, strict=True)) if parts else (0, 0)
    found = {name: array for name, array in tree_flatten(vars(cache)) if isinstance(array, mx.array)}
    buffers = [found.pop(name) for name in ("keys", "values") if name in found]  # (1, H, room, K)
    token = sum(array.shape[1] * array.shape[3] for array in buffers)
    return token, sum(array.size for array in found.values())
