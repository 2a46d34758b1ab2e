"""Confirmation before a large download. The command line sets the function that asks. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CONFIRMED_ABOVE = 1_000_000_000  # bytes

# Called with a hub id and the bytes to download; raises to refuse.
Ask = Callable[[str, int], None]

_ask: ContextVar[Ask | None] = ContextVar("_ask", default=None)


@contextmanager
def confirming_downloads(ask: Ask) -> Iterator[None]:
    """Call `ask` before each download of more than `CONFIRMED_ABOVE` bytes inside."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def confirm_download(hub_id: str, nbytes: int) -> None:
    """Ask before a download of more than `CONFIRMED_ABOVE` bytes. Raises what the function set by `confirming_downloads` raises."""
    ask = _ask.get()
    if ask is not None and nbytes > CONFIRMED_ABOVE:
        ask(hub_id, nbytes)
