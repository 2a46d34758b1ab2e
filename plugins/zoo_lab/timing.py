"""Times of small models on this machine. Axes: B rows, T tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import mlx.core as mx

ROWS, LENGTH = 16, 64


def seconds_of(work: Callable[[], mx.array], runs: int) -> float:
    """The median time of evaluating what `work` gives, after one run that does not count."""
    mx.eval(work())
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        mx.eval(work())
        taken.append(time.perf_counter() - began)
    return median(taken)


def microseconds_a_token(loaded: Any, runs: int) -> tuple[float, float]:
    """The time of a forward pass over (B, T) tokens, and that of the first layer's norm alone, in µs a token."""
    model = loaded.model
    tokens = mx.random.randint(0, loaded.recipe.vocab, (ROWS, LENGTH), key=mx.random.key(0))  # (B, T)
    hidden = mx.random.normal((ROWS, LENGTH, loaded.recipe.dim), key=mx.random.key(1))  # (B, T, D)
    norm = model.layers[0].mixer_norm
    times = seconds_of(lambda: model(tokens), runs), seconds_of(lambda: norm(hidden), 10 * runs)
    whole, alone = (1e6 * taken / tokens.size for taken in times)
    return whole, alone
