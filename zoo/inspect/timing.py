"""Seconds of tokens that are written, and of arrays that are evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


def timed_tokens(tokens: Iterator[Any]) -> tuple[float, float]:
    """Seconds to the first of some tokens, and of the others."""
    began = time.perf_counter()
    next(tokens, None)
    first = time.perf_counter() - began
    for _ in tokens:
        pass
    return first, time.perf_counter() - began - first


def evaluation_seconds(work: Callable[[], Any], runs: int) -> list[float]:
    """The seconds of evaluating what `work` gives, in each of `runs` runs after one that is not counted."""
    import mlx.core as mx

    mx.eval(work())
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        mx.eval(work())
        taken.append(time.perf_counter() - began)
    return taken
