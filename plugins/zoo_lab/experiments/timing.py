"""Times of small models on this machine. Axes: B rows, T tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import mlx.core as mx

from zoo.assemble import assemble
from zoo.host.registry import default_registry
from zoo.inspect.timing import evaluation_seconds
from zoo.loading import Loaded

ROWS, LENGTH = 16, 64


def microseconds_a_token(loaded: Loaded, runs: int) -> tuple[float, float]:
    """The time of a forward pass over (B, T) tokens, and that of the first layer's norm alone, in µs a token."""
    model = loaded.model
    tokens = mx.random.randint(0, loaded.recipe.vocab, (ROWS, LENGTH), key=mx.random.key(0))  # (B, T)
    hidden = mx.random.normal((ROWS, LENGTH, loaded.recipe.dim), key=mx.random.key(1))  # (B, T, D)
    norm = model.layers[0].mixer_norm
    whole = median(evaluation_seconds(lambda: model(tokens), runs))
    alone = median(evaluation_seconds(lambda: norm(hidden), 10 * runs))
    return 1e6 * whole / tokens.size, 1e6 * alone / tokens.size


def step_times(
    recipe: Any,
    lengths: Sequence[int],
    cached: bool,
    runs: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[float]:
    """The median seconds of the logits of one more token after each of `lengths` tokens, on random weights.

    `kv_cache_size`: the text before it has been read. Without, it is read again for each token.
    """
    model = assemble(recipe, default_registry(), copies=1)
    mx.eval(model.parameters())
    tokens = mx.random.randint(0, recipe.vocab, (1, max(lengths) + 1), key=mx.random.key(0))  # (1, T)
    times = []
    for number, length in enumerate(lengths):
        if cached:
            times.append(_cached_step(model, tokens[:, :length], runs))
        else:
            times.append(median(evaluation_seconds(partial(model, tokens[:, : length + 1]), runs)))
        report(number + 1, len(lengths))
    return times


def _cached_step(model: Any, text: mx.array, runs: int) -> float:
    """The median seconds of a step with a cache that holds the text: the first few after it, one of them not counted."""
    cache = model.make_cache()
    mx.eval(model(text, cache)[:, -1])
    return median(evaluation_seconds(lambda: model(text[:, :1], cache), runs))
