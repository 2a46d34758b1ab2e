"""Warnings that are shown only after the work has succeeded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deferred: ContextVar[list[str] | None] = ContextVar("_deferred", default=None)


def warn(message: str) -> None:
    """Warn in one line: at once, or after the work whose warnings are deferred."""
    waiting = _deferred.get()
    if waiting is None:
        warnings.warn(message, stacklevel=3)
    else:
        waiting.append(message)


@contextmanager
def deferred_warnings() -> Iterator[None]:
    """Hold back the warnings of what is done inside until it has succeeded; drop them when it fails."""
    if _deferred.get() is not None:  # an outer one defers them
        yield
        return
    waiting: list[str] = []
    token = _deferred.set(waiting)
    try:
        yield
    finally:
        _deferred.reset(token)
    for message in dict.fromkeys(waiting):
        warnings.warn(message, stacklevel=4)
