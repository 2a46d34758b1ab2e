"""HTTP: bodies within bounds, answers as JSON or events, clients that go away, and who may ask at all."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from zoo.files.reading import parse_json
from zoo.frozen import Frozen, frozen
from zoo_serve.endpoint import Endpoint, ErrorForm, Event
from zoo_serve.log import RequestLog
from zoo_serve.metrics import Metrics
from zoo_serve.requests import (
    DetokenizeRequest,
    EmbeddingRequest,
    GenerationRequest,
    RequestError,
    TokenizeRequest,
)
from zoo_serve.service import Generation, Service

Made = TypeVar("Made")
MOST_BODY = 16 * 2**20  # bytes
BODY_SECONDS = 30  # for all of a body
HEARTBEAT_SECONDS = 10  # of silence in a stream, after which a comment is sent
HEARTBEAT = b": waiting\n\n"


class ClientGone(Exception):
    """The client has closed its connection."""


async def read_json(request: Request) -> Any:
    """The JSON of a request's body; RequestError for one that is too large, too slow, of another type, or malformed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "send JSON, with the header Content-Type: application/json")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > MOST_BODY:
        raise RequestError(413, f"the body has more than {MOST_BODY} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > MOST_BODY:
                    raise RequestError(413, f"the body has more than {MOST_BODY} bytes")
    except TimeoutError:
        raise RequestError(408, f"the body did not arrive within {BODY_SECONDS} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    try:
        return parse_json(body.decode("utf-8"))
    except ValueError as error:
        raise RequestError(400, f"the body is not valid JSON ({error})") from None


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Made]) -> Made:
    """The value of `work`, which is cancelled, with `ClientGone`, when the client closes its connection."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for one in (task, watch):
            one.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await one


def encoded(events: Iterable[Event]) -> bytes:
    """Events as server-sent events."""
    lines = []
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        lines.append(f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n")
    return "".join(lines).encode("utf-8", "replace")


class EndpointApp:
    """The ASGI application of one endpoint."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self.endpoint, self.service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        log, error = RequestLog(self.endpoint.path), None
        began = False

        async def sending(message: Any) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began, log.status = True, message["status"]
            await send(message)

        try:
            request = self.endpoint.parse(await read_json(Request(scope, receive)))
            log.model = request.model
            await unless_gone(receive, self._answer(request, sending, log))
        except ClientGone:
            log.status = log.status or 499
            log.cancelled = True
            self.service.metrics.cancelled()
        except RequestError as problem:
            error = problem
        except Exception as problem:
            log.error = problem
            error = RequestError(500, "the server failed at this request", code="internal_error")
        if error is not None and not began:
            await error_response(error, self.endpoint)(scope, receive, sending)
        log.write()
        self.service.metrics.finished(self.endpoint.path, log.status or 500)

    async def _answer(self, request: Any, send: Send, log: RequestLog) -> None:
        """Answer a request."""
        service = self.service
        if isinstance(request, GenerationRequest):
            async with service.generate(request) as generation:
                log.generation = generation
                await self._generated(request, generation, send)
            return
        if isinstance(request, EmbeddingRequest):
            result: Any = await service.embed(request)
        elif isinstance(request, TokenizeRequest):
            result = await service.tokenize(request)
        else:
            assert isinstance(request, DetokenizeRequest)
            result = await service.detokenize(request)
        await _send_json(self.endpoint.respond(request, result), send)

    async def _generated(self, request: GenerationRequest, generation: Generation, send: Send) -> None:
        """Send what is generated, at once or as events."""
        limit = self.service.limits.seconds
        late = RequestError(503, f"the request took longer than {limit:g} s", code="timeout")
        if not request.stream or self.endpoint.stream is None:
            try:
                async with asyncio.timeout(limit):
                    await generation.begun()
                    async for _ in generation.deltas():
                        pass
            except TimeoutError:
                raise late from None
            await _send_json(self.endpoint.respond(request, generation.answer), send)
            return
        beginning = asyncio.ensure_future(generation.begun())
        # What the model refuses should be an error with its status, unless the request has to wait.
        await asyncio.wait({beginning}, timeout=HEARTBEAT_SECONDS)
        if beginning.done():
            beginning.result()
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def write(data: bytes, more: bool = True) -> None:
            if data or not more:
                await send({"type": "http.response.body", "body": data, "more_body": more})

        stream = self.endpoint.stream(request, generation.answer)
        try:
            async with asyncio.timeout(limit):
                await self._kept_alive(beginning, write)
                await write(encoded(stream.start()))
                parts = generation.deltas()
                while (part := await self._kept_alive(anext(parts, None), write)) is not None:
                    await write(encoded(event for delta in part for event in stream.add(delta)))
        except TimeoutError:
            await write(encoded(stream.failed(late)), False)
            return
        except RequestError as error:
            await write(encoded(stream.failed(error)), False)
            return
        await write(encoded(stream.end()), False)

    async def _kept_alive(self, work: Awaitable[Made], write: Callable[[bytes], Awaitable[None]]) -> Made:
        """The value of `work`, while comments keep the connection open."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=HEARTBEAT_SECONDS))[0]:
                await write(HEARTBEAT)
            return task.result()
        finally:
            task.cancel()


async def _send_json(content: Any, send: Send) -> None:
    body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_response(error: RequestError, endpoint: Endpoint) -> JSONResponse:
    """An error in the form of an endpoint's interface. The connection closes where the body was not read to its end."""
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if error.status in (408, 413, 415):
        headers["connection"] = "close"
    return JSONResponse(endpoint.error(error), error.status, headers)


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
        request = Request(scope, receive)
        origin = request.headers.get("origin")
        allowed = origin is not None and origin in self.access.origins
        error = self._refused(request, origin, allowed)
        if error is None and request.method == "OPTIONS" and allowed:
            await self._preflight(request)(scope, receive, _with_origin(send, origin))
            return
        if error is not None:
            self.metrics.refused(error.code or "")
            response = JSONResponse(
                self.error_form(request.url.path)(error), error.status, {"connection": "close"}
            )
            await response(scope, receive, send)
            return
        await self.app(scope, receive, _with_origin(send, origin) if allowed else send)

    def _refused(self, request: Request, origin: str | None, allowed: bool) -> RequestError | None:
        host = request.headers.get("host", "")
        if not self._known(host):
            return RequestError(
                403, f"the host {host!r:.80} is not this server's: --allow-host adds one", code="host"
            )
        own = origin is None or origin == f"{request.url.scheme}://{host}"
        if not (own or allowed):
            return RequestError(
                403, f"the origin {origin!r:.80} may not ask: --cors allows one", code="origin"
            )
        site = request.headers.get("sec-fetch-site", "none")
        navigates = request.headers.get("sec-fetch-mode") == "navigate" and request.url.path == "/"
        if origin is None and site in ("cross-site", "same-site") and not navigates:
            return RequestError(403, "a page of another site may not ask", code="origin")
        if (
            self.access.key is not None
            and request.url.path not in self.open_paths
            and not (request.method == "OPTIONS" and allowed)
        ):
            bearer = request.headers.get("authorization", "")
            given = bearer.removeprefix("Bearer ") if bearer else request.headers.get("x-api-key", "")
            if not secrets.compare_digest(given.encode("utf-8", "replace"), self.access.key.encode()):
                return RequestError(401, "the API key is missing or wrong", code="invalid_api_key")
        return None

    def _known(self, host: str) -> bool:
        """Whether a Host header is an address or one of this machine's names."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        with suppress(ValueError):
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
            return True
        return name.lower().rstrip(".") in self.hosts

    def _preflight(self, request: Request) -> JSONResponse:
        headers = {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": request.headers.get("access-control-request-headers", ""),
            "access-control-max-age": "600",
        }
        return JSONResponse(None, 200, headers)


def _with_origin(send: Send, origin: str | None) -> Send:
    """`send` with the headers that let a page of this origin read the response."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            allow = [(b"access-control-allow-origin", (origin or "").encode()), (b"vary", b"Origin")]
            message = {**message, "headers": [*message["headers"], *allow]}
        await send(message)

    return sending
