"""The process: sockets, connections within bounds, signals, and the line to paste into a client."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from zoo.errors import ZooError, in_words
from zoo_serve.log import say
from zoo_serve.requests import RequestError
from zoo_serve.service import Service

MOST_CONNECTIONS = 1024
HEADER_SECONDS = 15  # in which a connection must send the whole head of a request
WRITE_SECONDS = 30  # in which a reader must take something, or it is dropped
IDLE_SECONDS = 75  # that a connection is kept between two requests
STOP_SECONDS = 30  # in which running answers are finished after SIGTERM


class Connection(H11Protocol):
    """A connection that is closed where its peer sends a head, or reads an answer, too slowly, or there are too many."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._limit(HEADER_SECONDS)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # a head has come
            self._unlimit()

    def data_received(self, data: bytes) -> None:
        waiting = self.cycle is None or self.cycle.response_complete
        super().data_received(data)
        if waiting and (self.cycle is None or self.cycle.response_complete) and self._timer is None:
            self._limit(HEADER_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit(WRITE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unlimit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unlimit()
        super().connection_lost(exc)

    def _limit(self, seconds: float) -> None:
        self._unlimit()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _unlimit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """uvicorn's server with the service's life: loads the first model, and stops with the signals' meaning.

    The first SIGTERM or SIGINT refuses new requests and lets running ones finish for `STOP_SECONDS`; the second ends the
    process. `problem` is the error of the worker, or of loading the first model.
    """

    def __init__(
        self, app: ASGIApp, service: Service, host: str, port: int, on_ready: Callable[[str], None]
    ) -> None:
        """`on_ready` is called with the server's address, "http://127.0.0.1:8080", when the first model is loaded."""
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self.service, self._on_ready = service, on_ready
        self.problem: BaseException | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Listen, then load the first model."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        if self.started:
            self._loading = asyncio.ensure_future(self._load())

    async def _load(self) -> None:
        try:
            await self.service.load()
        except RequestError as error:
            self.fail(error.__cause__ or error)
            return
        self._on_ready(self.address)

    @property
    def address(self) -> str:
        """The address of a server that has started, as this machine reaches it."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def fail(self, error: BaseException) -> None:
        """End the process with an error. In the event loop."""
        self.problem, self.should_exit = error, True

    def worker_failed(self, error: BaseException) -> None:
        """End the process, since its worker has ended. From the worker's thread."""
        problem = ZooError(f"the server's worker has ended: {in_words(error)}")
        problem.__cause__ = error
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.fail, problem)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at once where the server is stopping already."""
        if self.service.stopping:
            os._exit(128 + sig)
        self.service.stopping = self.should_exit = True
        if self.service.under_way:
            say(
                f"zoo: finishing {self.service.under_way} requests for at most {STOP_SECONDS} s; again to end at once"
            )

    def run_to_end(self) -> None:
        """Serve until a signal or a failure; the error where the first model cannot be loaded or the worker ended."""
        raise_file_limit()
        self.run()
        self.service.worker.stop()
        if self.problem is not None:
            raise self.problem


def raise_file_limit() -> None:
    """Allow this process as many open files as the system lets it, since each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_CONNECTIONS
    if soft < wanted:
        with suppress(ValueError, OSError):
            most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
