"""Forward passes whose values may be computed as soon as they are needed, since nothing traces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import mlx.core as mx

_cache: ContextVar[dict[Any, Any] | None] = ContextVar("forward", default=None)  # of `cache_per_forward`
T = TypeVar("T")


@contextmanager
def eager() -> Iterator[None]:
    """The context of such a pass. No gradient passes."""
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def cache_per_forward(key: Any, make: Callable[[], T]) -> T | None:
    """The result of `make`, which is called once for each `key` inside an `eager()`. None outside of it."""
    known = _cache.get()
    if known is None:
        return None
    if key not in known:
        known[key] = make()
    result: T = known[key]
    return result


def evaluates(*arrays: mx.array | None) -> bool:
    """Whether this is inside `eager()`; the arrays then have their values."""
    if _cache.get() is None:
        return False
    try:
        mx.eval(arrays)
    except ValueError:  # a block of a plugin is traced by mx.compile or mx.vmap of its own
        return False
    return True
