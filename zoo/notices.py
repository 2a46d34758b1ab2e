"""Warnings: those deferred until the work has succeeded, and those about former names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_deferred: ContextVar[list[str] | None] = ContextVar("_deferred", default=None)


def notice(message: str) -> None:
    """Warn of something in one line: at once, or at the end of the work whose notices are `deferred`."""
    waiting = _deferred.get()
    if waiting is None:
        warnings.warn(message, stacklevel=3)
    else:
        waiting.append(message)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer the notices of what is done inside until it has succeeded; they are dropped when it fails."""
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


def renamed_argument(old: str, new: str) -> Callable[[Function], Function]:
    """Make a function also accept its argument `new` by its former name, with a DeprecationWarning."""

    def accept(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if old in kwargs:
                message = f"{function.__name__}: the argument {old} is now called {new}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return accept
