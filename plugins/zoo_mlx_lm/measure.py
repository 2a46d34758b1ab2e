"""The recipe of a model of mlx-lm: its sizes are read off the model, of which nothing is evaluated.

Axes: T length, H heads, K width of a head.
"""

import json
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo_mlx_lm.network import failure, make, settings_of
from zoo_mlx_lm.spec import Bridged


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
