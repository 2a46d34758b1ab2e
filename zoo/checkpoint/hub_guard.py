"""Checks on what a hub answers, made before huggingface_hub acts on it: an endpoint may be broken, or hostile.

huggingface_hub makes paths of the commit and the etag that the hub answers with. Here every answer passes the event hooks of
its HTTP client first. A large download is confirmed before; the command line sets the function that asks. Imports no mlx.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from zoo.errors import SourceError

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ETAG = re.compile(r"[0-9a-f]{32,64}")
PUBLIC = "https://huggingface.co"

_guarded: ContextVar[str | None] = ContextVar("_guarded", default=None)


@contextmanager
def guarding(hub_id: str) -> Iterator[None]:
    """Check the answers to huggingface_hub's requests inside, made for this id.

    SourceError for a commit or an etag that is none.
    """
    _install()
    token = _guarded.set(hub_id)
    try:
        yield
    finally:
        _guarded.reset(token)


def _install() -> None:
    """Give the HTTP client of huggingface_hub the check, which concerns calls inside `guarding` alone.

    huggingface_hub makes a new client after a failed connection, so its own clients get it by a factory. Where a program
    has set another factory, its present client gets it.
    """
    from huggingface_hub import get_session, set_client_factory

    client = get_session()
    hooks = client.event_hooks
    if _check in hooks["response"]:
        return
    modules = {hook.__module__.partition(".")[0] for kind in ("request", "response") for hook in hooks[kind]}
    hooks = {"request": hooks["request"], "response": [*hooks["response"], _check]}
    client.event_hooks = hooks
    if modules == {"huggingface_hub"}:
        make: Any = type(client)
        options = dict(follow_redirects=client.follow_redirects, timeout=client.timeout)
        set_client_factory(lambda: make(event_hooks=hooks, **options))


def _check(response: Any) -> None:
    """SourceError for headers whose commit or etag is none. Keeps a file of another hub than the public one from hf_xet.

    hf_xet would fetch it with the token from whatever address the headers name.
    """
    hub_id, headers = _guarded.get(), response.headers
    if hub_id is None:
        return
    from huggingface_hub import constants

    check_hexadecimal(hub_id, "commit", headers.get("x-repo-commit"), COMMIT)
    if response.request.method == "HEAD":  # of a file
        etag = headers.get("x-linked-etag") or headers.get("etag")
        check_hexadecimal(hub_id, "etag", etag and etag.removeprefix("W/").strip('"'), ETAG)
    if constants.ENDPOINT != PUBLIC:
        for name in ("x-xet-hash", "x-xet-refresh-route"):
            headers.pop(name, None)


def check_hexadecimal(hub_id: str, what: str, value: str | None, form: re.Pattern[str]) -> None:
    """SourceError for a commit or an etag that is none, of which a path would be made."""
    if value is not None and not form.fullmatch(value):
        raise SourceError(
            f"{hub_id}: the hub gives {value[:80]!r} as {what}; it may be broken, or not to be trusted"
        )


CONFIRMED_ABOVE = 1_000_000_000  # bytes

# Called with a hub id and the bytes to download; raises to refuse.
Ask = Callable[[str, int], None]

_ask: ContextVar[Ask | None] = ContextVar("_ask", default=None)


@contextmanager
def confirming_downloads(ask: Ask) -> Iterator[None]:
    """Call `ask` before each download of more than `CONFIRMED_ABOVE` bytes, or of a preset's weights, inside."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def confirm_download(hub_id: str, nbytes: int, always: bool = False) -> None:
    """Ask before a download of more than `CONFIRMED_ABOVE` bytes, with `always` before any.

    Raises what the function set by `confirming_downloads` raises.
    """
    ask = _ask.get()
    if ask is not None and nbytes > (0 if always else CONFIRMED_ABOVE):
        ask(hub_id, nbytes)
