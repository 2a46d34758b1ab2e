"""Checks on what a hub answers, made before huggingface_hub acts on it: an endpoint may be broken, or hostile.

huggingface_hub makes paths of the commit and the etag that the hub answers with, and reads each answer to its end. Here every
answer passes the event hooks of its HTTP client first. A large download is confirmed before; the command line sets the
function that asks. Imports no mlx.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import urlsplit

from zoo.errors import SourceError

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
ETAG = re.compile(r"[0-9a-f]{32,64}")

ERROR_PAGE = 2**20  # bytes, at most
STALL = 60.0  # seconds in which SLOWEST bytes a second have to come
SLOWEST = 1_000  # bytes a second, on average
AGAIN = 4  # times its size that a file may take, all tries together

_DEFAULT_ENDPOINT = "https://huggingface.co"
_PORTS = {"http": 80, "https": 443}

T = TypeVar("T")


@dataclass
class ExpectedResponse:
    """The limits of the hub's response to one call of huggingface_hub.

    `what` is asked for, `most` the bytes that it may have. A file has exactly `size` bytes where that is known, and is
    of `commit`.
    """

    hub_id: str
    what: str
    most: int
    commit: str | None = None
    size: int | None = None
    received: int = 0
    given_up: threading.Event = field(default_factory=threading.Event)

    def error(self, fault: str) -> SourceError:
        """The error of one line for a fault of this answer."""
        return SourceError(f"{self.hub_id}: the hub {fault}; it may be broken, or not to be trusted")

    def check(self, response: Any) -> None:
        """SourceError for a response of another commit or size, a compressed one, or one with an invalid etag."""
        headers = response.headers
        commit = headers.get("x-repo-commit")
        if commit is not None and not COMMIT.fullmatch(commit):
            raise self.error(f"names a commit of {self.what} that is none, {commit[:80]!r}")
        if headers.get("content-encoding", "identity") != "identity":
            raise self.error(f"compresses {self.what}, which nobody asked it to")
        length, ok = None, response.status_code < 300
        if response.request.method == "HEAD":  # of a file
            etag = headers.get("x-linked-etag") or headers.get("etag")
            if etag is not None and not ETAG.fullmatch(etag.removeprefix("W/").strip('"')):
                raise self.error(f"names an etag of {self.what} that is none, {etag[:80]!r}")
            if commit is not None and self.commit is not None and commit != self.commit:
                raise self.error(f"gives {self.what} of another commit, {commit[:8]}, than {self.commit[:8]}")
            length, ok = _whole(headers.get("x-linked-size")), response.status_code == 200
        if length is None and ok:
            length = _whole(headers.get("content-length"))
        if length is None:
            return
        if response.request.method == "HEAD" and self.size is not None and length != self.size:
            raise self.error(f"lists {self.what} with {self.size:,} bytes and gives {length:,}")
        if length > self.most:
            raise self.error(f"gives {length:,} bytes for {self.what}, which may have {self.most:,}")

    def count(self, amount: int) -> None:
        """Count received bytes; SourceError when the download was given up, or is retried without end."""
        self.received += amount
        if self.given_up.is_set():
            raise self.error(f"was given up on {self.what}")
        if self.received > AGAIN * self.most + ERROR_PAGE:
            raise self.error(f"never comes to the end of {self.what}")


_expected: ContextVar[ExpectedResponse | None] = ContextVar("_expected", default=None)


def guarded(answer: ExpectedResponse, call: Callable[[], T]) -> T:
    """Run `call` and return its result; the responses to its requests are checked against `answer`.

    SourceError for an answer that is not as expected, and for one that is slower than `SLOWEST` over `STALL` seconds.
    The call runs in a thread of its own, so that neither a hub that trickles nor a wait that it asks for can hold this
    one, and Ctrl-C ends it at once.
    """
    from concurrent.futures import Future, wait

    _install()
    future: Future[T] = Future()

    def run() -> None:
        _expected.set(answer)
        try:
            future.set_result(call())
        except BaseException as error:  # raised again by the thread that waits
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    try:
        since, before = time.monotonic(), answer.received
        while not wait([future], 0.1).done:
            if time.monotonic() - since > STALL:
                if (came := answer.received - before) < SLOWEST * STALL:
                    raise SourceError(
                        f"{answer.hub_id}: {f'only {came:,} bytes' if came else 'nothing'} of {answer.what} came from the hub "
                        f"in {STALL:.0f} seconds; check the network and run again: files that are whole are kept"
                    )
                since, before = time.monotonic(), answer.received
    except BaseException:
        answer.given_up.set()
        wait([future], 1)  # in which it removes what it has half written
        raise
    return future.result()


def _install() -> None:
    """Give the HTTP client of huggingface_hub the checks, which concern `guarded` calls alone.

    huggingface_hub makes a new client after a failed connection, so its own clients get them by a factory. Where a program
    has set another factory, its present client gets them.
    """
    from huggingface_hub import get_session, set_client_factory

    client = get_session()
    hooks = client.event_hooks
    if _before_body in hooks["response"]:
        return
    modules = {hook.__module__.partition(".")[0] for kind in ("request", "response") for hook in hooks[kind]}
    hooks = {
        "request": [*hooks["request"], _before_request],
        "response": [*hooks["response"], _before_body],
    }
    client.event_hooks = hooks
    if modules == {"huggingface_hub"}:
        make: Any = type(client)
        options = dict(follow_redirects=client.follow_redirects, timeout=client.timeout)
        set_client_factory(lambda: make(event_hooks=hooks, **options))


def _before_request(request: Any) -> None:
    """Keep the token from any other host, and ask for nothing compressed: a few bytes could become gigabytes."""
    answer = _expected.get()
    if answer is None:
        return
    answer.count(0)
    from huggingface_hub import constants

    if _origin(str(request.url)) != _origin(constants.ENDPOINT):
        request.headers.pop("authorization", None)
    request.headers["Accept-Encoding"] = "identity"


def _before_body(response: Any) -> None:
    """Check what the headers say, and bound the body."""
    answer = _expected.get()
    if answer is None:
        return
    answer.check(response)
    _keep_from_xet(response)
    most = answer.most if response.status_code < 400 else ERROR_PAGE
    http = import_module(type(response).__module__.partition(".")[0])
    response.stream = _bounded(http)(response.stream, answer, most)


def _keep_from_xet(response: Any) -> None:
    """Remove what makes hf_xet fetch a file, past these checks and with the token, unless the public hub says it."""
    from huggingface_hub import constants

    link = response.links.get("xet-auth", {}).get("url") or response.headers.get("x-xet-refresh-route", "")
    public = _origin(constants.ENDPOINT) == _origin(_DEFAULT_ENDPOINT) == _origin(link)
    if not public:
        for name in ("x-xet-hash", "x-xet-refresh-route"):
            response.headers.pop(name, None)


@cache
def _bounded(http: Any) -> Any:
    """The class of a bounded body, for the HTTP library (httpx, or what follows it) of this huggingface_hub."""

    class Bounded(http.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any, answer: ExpectedResponse, most: int) -> None:
            self.stream, self.answer, self.most = stream, answer, most

        def __iter__(self) -> Iterator[bytes]:
            left = self.most
            for chunk in self.stream:
                left -= len(chunk)
                if left < 0:
                    more = f"more of {self.answer.what} than the {self.most:,} bytes it may have"
                    raise self.answer.error(f"sends {more}")
                self.answer.count(len(chunk))
                yield chunk

        def close(self) -> None:
            self.stream.close()

    return Bounded


def _origin(url: str) -> tuple[str, str, int]:
    """The scheme, host and port of a URL; empty for a malformed one, which then equals none that is asked for."""
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", "", 0


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


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
