"""HTTP: bodies within bounds, answers as JSON or events, and clients that go away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from zoo.files.reading import parse_json
from zoo_serve.endpoint import Endpoint, Event, EventStream
from zoo_serve.log import RequestLog, note
from zoo_serve.requests import (
    Answer,
    ClassificationRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    GenerationRequest,
    ModelRequest,
    RequestError,
    ScoreRequest,
    TokenizeRequest,
)
from zoo_serve.service import RETRY_SECONDS, Service

Made = TypeVar("Made")
MOST_BODY = 16 * 2**20  # bytes
MOST_BODIES = 16 * MOST_BODY  # of all requests under way
SMALL_BODY = 2**16  # bytes that are parsed in the event loop
MOST_VALUES = 2**18  # in a body's JSON
BODY_SECONDS = 30  # for all of a body
MOST_DISCARDED = 4 * MOST_BODY  # bytes of a refused body
DISCARD_SECONDS = 2  # in which the rest of a refused body is read, so that its client sees why
HEARTBEAT_SECONDS = 10  # of silence in a stream, after which a comment is sent
HEARTBEAT = b": waiting\n\n"
SPACE = b" "  # before a line of JSON, which has no comments
STREAM_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx
]


class ClientGone(Exception):
    """The client has closed its connection."""


class EndpointApp:
    """The ASGI application of one endpoint."""

    def __init__(self, endpoint: Endpoint, service: Service) -> None:
        self.endpoint, self.service = endpoint, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Exchange(self.endpoint, self.service, scope, receive, send).run()


class Exchange:
    """One request and its response."""

    def __init__(
        self, endpoint: Endpoint, service: Service, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.endpoint, self.service, self.log = endpoint, service, RequestLog(endpoint.path)
        self._scope, self._receive, self._sender = scope, receive, send
        self._body_bytes, self._body_read = 0, False
        self._events: EventStream | None = None  # of a request for a stream

    async def run(self) -> None:
        """Answer the request, with an error where it cannot be; nothing is raised."""
        error = None
        try:
            await self._read_and_answer()
        except ClientGone:
            self.log.status, self.log.cancelled = self.log.status or 499, True
            self.service.metrics.cancelled()
        except asyncio.CancelledError:  # the server ends what takes too long to finish
            error = RequestError(503, "the server is stopping", code="stopping", retry_after=RETRY_SECONDS)
        except RequestError as problem:
            error, self.log.error = problem, problem.__cause__ if problem.status >= 500 else None
        except Exception as problem:
            self.log.error = problem
            error = RequestError(500, "the server failed at this request", code="internal_error")
        try:
            if error is not None:
                await self._fail(error)
        finally:
            self.service.body_bytes -= self._body_bytes
            self.log.write()
            self.service.metrics.finished(self.endpoint.path, self.log.status or 500)

    async def _read_and_answer(self) -> None:
        body = await self._body()
        await unless_gone(self._receive, self._answer(body))

    async def _body(self) -> bytes:
        """The body; RequestError for one that is too large, too slow or of another type."""
        request = Request(self._scope, self._receive)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not self.endpoint.any_type:
            raise RequestError(415, "send JSON, with the header Content-Type: application/json")
        large = RequestError(413, f"the body has more than {MOST_BODY} bytes")
        length = request.headers.get("content-length", "0")
        if int(length) > MOST_BODY:  # the HTTP library refuses one that is no number
            raise large
        pieces = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for piece in request.stream():
                    pieces.append(piece)
                    self._body_bytes += len(piece)
                    self.service.body_bytes += len(piece)
                    if self._body_bytes > MOST_BODY:
                        raise large
                    if self.service.body_bytes > MOST_BODIES:
                        raise RequestError(
                            503, "too much is being sent", code="overloaded", retry_after=RETRY_SECONDS
                        )
        except TimeoutError:
            raise RequestError(408, f"the body did not arrive within {BODY_SECONDS} s") from None
        except ClientDisconnect:
            raise ClientGone from None
        self._body_read = True
        return b"".join(pieces)

    async def _answer(self, body: bytes) -> None:
        """Answer the request of a body; RequestError where it takes too long."""
        limit = self.service.limits.seconds
        try:
            async with asyncio.timeout(limit):
                if len(body) <= SMALL_BODY:
                    request = self._parse(body)
                else:
                    request = await self.service.in_thread(self._parse, body)
                self.log.model = request.model
                for line in getattr(request, "notes", ()):
                    note(line)
                await self._respond(request)
        except TimeoutError:
            raise RequestError(503, f"the request took longer than {limit:g} s", code="timeout") from None

    def _parse(self, body: bytes) -> Any:
        """The request of a body."""
        try:
            value = parse_json(body.decode("utf-8"), most=MOST_VALUES, standard=True)
        except ValueError as error:
            raise RequestError(400, f"the body is not valid JSON ({error})") from None
        return self.endpoint.parse(value)

    async def _respond(self, request: Any) -> None:
        service = self.service
        if isinstance(request, GenerationRequest):
            if request.stream and self.endpoint.stream is not None:
                await self._stream(request)
                return
            async with service.generate(request) as generation:
                self.log.generation = generation
                while not generation.ended:
                    await generation.next()
                await generation.remember()
                await self._json(self.endpoint.respond(request, generation.answer))
            return
        if isinstance(request, EmbeddingRequest):
            result: Any = await service.embed(request)
        elif isinstance(request, ClassificationRequest | ScoreRequest):
            result = await service.rank(request)
        elif isinstance(request, TokenizeRequest):
            result = await service.tokenize(request)
        elif isinstance(request, ModelRequest):
            result = await service.model(request)
        else:
            assert isinstance(request, DetokenizeRequest)
            result = await service.detokenize(request)
        await self._json(self.endpoint.respond(request, result))

    async def _stream(self, request: GenerationRequest) -> None:
        """Send what is generated as events. An error before anything was sent has its own status."""
        assert self.endpoint.stream is not None
        self._events = self.endpoint.stream(request, Answer(request.model or "", []))  # for an error
        async with AsyncExitStack() as stack:
            beginning = asyncio.ensure_future(stack.enter_async_context(self.service.generate(request)))
            try:
                await self._kept_alive(lambda: asyncio.wait({beginning}))
            finally:
                await cancel(beginning)
            generation = self.log.generation = beginning.result()
            self._events = events = self.endpoint.stream(request, generation.answer)
            await self._write(self._encode(events.start()))
            while not generation.ended:
                deltas = await self._kept_alive(generation.next)
                await self._write(self._encode(event for delta in deltas for event in events.add(delta)))
            await generation.remember()
            await self._write(self._encode(events.end()), last=True)

    async def _kept_alive(self, work: Callable[[], Awaitable[Made]]) -> Made:
        """The value of `work`, while comments keep the connection open. Work that is cancelled must be able to start anew."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    return await work()
            except TimeoutError:
                await self._write(SPACE if self.endpoint.json_lines else HEARTBEAT)

    async def _write(self, data: bytes, last: bool = False) -> None:
        """Send a part of a body, after the head of a stream where no head was sent."""
        if self.log.status is None:
            kind = (
                b"application/x-ndjson" if self.endpoint.json_lines else b"text/event-stream; charset=utf-8"
            )
            headers = [(b"content-type", kind), *STREAM_HEADERS]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        if data or last:
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    def _encode(self, events: Iterable[Event]) -> bytes:
        return json_lines(events) if self.endpoint.json_lines else encoded(events)

    async def _json(self, content: Any) -> None:
        body = _compact(content).encode("utf-8", "replace")
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(body, last=True)

    async def _fail(self, error: RequestError) -> None:
        """Send an error in the form of the endpoint's interface, as an event where a stream has begun."""
        if self.log.status is None:
            headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
            if not self._body_read:
                headers["connection"] = "close"
                await self._discard()
            response = JSONResponse(self.endpoint.error(error), error.status, headers)
            await response(self._scope, self._receive, self._send)
        elif self._events is not None:
            await self._write(self._encode(self._events.failed(error)), last=True)

    async def _discard(self) -> None:
        """Read what is left of the body and forget it, within bounds: who still sends does not see a response."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while size <= MOST_DISCARDED and (message := await self._receive()).get("more_body"):
                    size += len(message["body"])

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.log.status = message["status"]
        await self._sender(message)


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
        await cancel(task, watch)


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks that have not ended, and wait until they have."""
    for task in tasks:
        if task.cancel():
            with suppress(asyncio.CancelledError, Exception):
                await task


def encoded(events: Iterable[Event]) -> bytes:
    """Events as server-sent events."""
    lines = []
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        lines.append(f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n")
    return "".join(lines).encode("utf-8", "replace")


def json_lines(events: Iterable[Event]) -> bytes:
    """The data of events as lines of JSON."""
    return "".join(f"{_compact(data)}\n" for _, data in events).encode("utf-8", "replace")


def _compact(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
