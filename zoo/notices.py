"""Warnings of work that may still fail: they are given when it has succeeded, so that a failure is one line alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_held: ContextVar[list[str] | None] = ContextVar("_held", default=None)


def notice(message: str) -> None:
    """Warn of something in one line: at once, or at the end of the work whose notices are `held`."""
    waiting = _held.get()
    if waiting is None:
        warnings.warn(message, stacklevel=3)
    else:
        waiting.append(message)


@contextmanager
def held() -> Iterator[None]:
    """Hold the notices of what is done inside until it has succeeded; they are dropped when it fails."""
    if _held.get() is not None:  # an outer one holds them
        yield
        return
    waiting: list[str] = []
    token = _held.set(waiting)
    try:
        yield
    finally:
        _held.reset(token)
    for message in dict.fromkeys(waiting):
        warnings.warn(message, stacklevel=4)
