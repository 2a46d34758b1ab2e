"""Who may ask: by the names of this machine, by the origin of a web page, and by a key."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from zoo.frozen import Frozen, frozen
from zoo_serve.endpoint import ErrorForm
from zoo_serve.metrics import Metrics
from zoo_serve.requests import RequestError


@frozen()
class Access(Frozen):
    """Who may ask: with which key, by which names of this machine, and from which web pages."""

    key: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


class Guard:
    """Middleware that refuses requests by their Host, their origin and their key.

    A web page of another site cannot ask, whatever name it gives this machine: the Host must be an address, this machine's
    name or one that was allowed (DNS rebinding), and the origin this server's own or one that was allowed.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        open_paths: Iterable[str],
        error_form: Callable[[str], ErrorForm],
        metrics: Metrics,
    ) -> None:
        """`open_paths` need no key; `error_form` gives the form of errors at a path."""
        self.app, self.access, self.open_paths = app, access, frozenset(open_paths)
        self.error_form, self.metrics = error_form, metrics
        self.hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in access.hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_open = scope["path"] in self.open_paths  # as it was asked for
        scope = {**scope, "path": self._plain_path(scope["path"])}
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin is not None and origin in self.access.origins
        preflight = allowed and scope["method"] == "OPTIONS"
        error = self._refused_page(scope, headers, allowed)
        if error is None and "\n" in scope["path"]:  # a route would match one that ends with it
            error = RequestError(404, "there is nothing at this path", code="path")
        if error is None and not preflight and not is_open:
            error = self._refused_key(headers)
        app = self.app
        if error is not None:
            self.metrics.refused(error.code or "")
            form = self.error_form(scope["path"])
            app = JSONResponse(form(error), error.status, {"connection": "close"})
        elif preflight:
            app = _preflight(headers)
        await app(scope, receive, _with_origin(send, origin) if allowed else send)

    def _refused_page(self, scope: Scope, headers: Headers, allowed: bool) -> RequestError | None:
        """The error for a request by a name that is not this server's, or by another site's page."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._known(host):
            return RequestError(
                403, f"the host {host!r:.80} is not this server's: --allow-host adds one", code="host"
            )
        same_origin = origin is None or origin == f"{scope['scheme']}://{host}"
        if not (same_origin or allowed):
            return RequestError(
                403, f"the origin {origin!r:.80} may not ask: --cors allows one", code="origin"
            )
        site = headers.get("sec-fetch-site", "none")
        navigates = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        if origin is None and site in ("cross-site", "same-site") and not navigates:
            return RequestError(403, "a page of another site may not ask", code="origin")
        return None

    def _refused_key(self, headers: Headers) -> RequestError | None:
        """The error for a request without the key, which may stand in either of two headers."""
        if self.access.key is None:
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer if scheme.lower() == "bearer" else "", headers.get("x-api-key", "")]
        # A header's bytes are read as Latin-1.
        matches = [
            secrets.compare_digest(candidate.strip().encode("latin-1"), self.access.key.encode())
            for candidate in given
        ]
        return (
            None
            if any(matches)
            else RequestError(401, "the API key is missing or wrong", code="invalid_api_key")
        )

    def _plain_path(self, path: str) -> str:
        """A path without slashes at its end; of a whole URL of this server (RFC 9112, 3.2.2), as proxies send, its path."""
        scheme, mark, rest = path.partition("://")
        host, _, below = rest.partition("/")
        if mark and scheme in ("http", "https") and self._known(host):
            path = f"/{below}"
        return path.rstrip("/") or "/"

    def _known(self, host: str) -> bool:
        """Whether a Host header is an address or one of this machine's names."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        with suppress(ValueError):
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
            return True
        return name.lower().rstrip(".") in self.hosts


def _preflight(headers: Headers) -> Response:
    """What a page of an allowed origin may send."""
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": headers.get("access-control-request-headers", ""),
            "access-control-max-age": "600",
        },
    )


def _with_origin(send: Send, origin: str | None) -> Send:
    """`send` with the headers that let a page of this origin read the response."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            allow = [(b"access-control-allow-origin", (origin or "").encode("latin-1")), (b"vary", b"Origin")]
            message = {**message, "headers": [*message["headers"], *allow]}
        await send(message)

    return sending
