"""The process: sockets, connections within bounds, signals, and the line to paste into a client."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from zoo.errors import RankError, ZooError, in_words, pluralize
from zoo.machine import launched
from zoo_serve.log import LineHandler, say
from zoo_serve.requests import RequestError
from zoo_serve.service import Service

MOST_CONNECTIONS = 1024
HEADER_SECONDS = 15  # in which a connection must send the whole head of a request
MOST_AHEAD = 2**16  # bytes that a peer may send before it has its response
WRITE_SECONDS = 30  # in which a reader must take something, or it is dropped
IDLE_SECONDS = 75  # that a connection is kept between two requests
LOST_SECONDS = 3  # in which clients get their errors after a rank has ended
NOTICED_SECONDS = 0.5  # after which the watch has seen that a rank has ended
STOP_SECONDS = 30  # in which running answers are finished after SIGTERM


class Connection(H11Protocol):
    """A connection that is dropped where its peer sends, or reads, too slowly.

    Where there are too many, the one that has waited longest for its peer makes room for a new one, so that silent
    connections lock nobody out.
    """

    most = MOST_CONNECTIONS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ahead = 0  # bytes that came before the response was complete
        self._dropped = False
        self._since = self.loop.time()  # when the last request, or response, was complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit("head", HEADER_SECONDS)
        if len(self.connections) > self.most:
            waiting: Any = [each for each in self.connections if each._waits_for_peer]  # type: ignore[union-attr]
            min(waiting, key=lambda each: each._since)._drop()

    @property
    def _waits_for_peer(self) -> bool:
        """Whether the peer has to send or to read something next."""
        idle = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return not self._dropped and (idle or self.flow.write_paused)

    def handle_events(self) -> None:
        before = self.cycle
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        super().handle_events()
        if self.cycle is not before:  # a head has come
            self._unlimit("head")
            self._since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        ahead = cycle is not None and not cycle.response_complete and not cycle.more_body
        super().data_received(data)
        if ahead:
            self._ahead += len(data)
            if self._ahead > MOST_AHEAD:
                self._drop()
            else:
                self.flow.resume_reading()  # or nobody would see that the peer goes away
        elif (self.cycle is None or self.cycle.response_complete) and "head" not in self._timers:
            self._limit("head", HEADER_SECONDS)

    def on_response_complete(self) -> None:
        self._ahead, self._since = 0, self.loop.time()
        super().on_response_complete()
        self._limit_close()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state is h11.SEND_BODY:  # of the response to the request before
            self._drop()
        else:
            super().send_400_response(msg)
            self._limit_close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._limit_close()

    def shutdown(self) -> None:
        with suppress(h11.LocalProtocolError):  # of a connection that is closing
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit("write", WRITE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unlimit("write")

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._timers):
            self._unlimit(name)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _limit_close(self) -> None:
        """Bound the time in which a peer must read what was sent before the connection closes."""
        if self.transport.is_closing():
            self._limit("write", WRITE_SECONDS)

    def _limit(self, name: str, seconds: float) -> None:
        self._unlimit(name)
        self._timers[name] = self.loop.call_later(seconds, self._drop)

    def _unlimit(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _drop(self) -> None:
        self._dropped = True
        self.transport.abort()


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
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,  # each connection sets it: the server then need not wake for it
                backlog=MOST_CONNECTIONS,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self.service, self._host, self._port, self._on_ready = service, host, port, on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._over, self._rank_lost = threading.Event(), threading.Event()
        self.problem: BaseException | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Listen, then load the first model."""
        self._loop = asyncio.get_running_loop()
        self._wake_at_signals(self._loop)
        await super().startup(sockets)
        self._loading = asyncio.ensure_future(self._load())

    def _wake_at_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let each signal wake the loop, also one that another thread receives or that comes just before the loop waits."""
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED_SIGNALS:
                loop.add_signal_handler(number, lambda: None)
                signal.signal(number, self.handle_exit)  # also while the loop is busy

    async def main_loop(self) -> None:
        """Wait for the end; nothing polls."""
        await self._ending.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        """Finish what runs, for at most `STOP_SECONDS`."""
        await super().shutdown(sockets)
        if self.server_state.tasks:  # they were cancelled, and say so to their clients
            await asyncio.wait(self.server_state.tasks, timeout=1)

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
        self.problem = self.problem or error
        self.config.timeout_graceful_shutdown = 1  # in which clients get their errors
        self.service.stopping = True
        self._end()

    def _end(self) -> None:
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    def worker_failed(self, error: BaseException) -> None:
        """End the process, since its worker has ended. From the worker's thread."""
        problem = ZooError(f"the server's worker has ended: {in_words(error)}")
        problem.__cause__ = error
        with suppress(RuntimeError, AttributeError):  # the loop has ended, or not begun
            self._loop.call_soon_threadsafe(self.fail, problem)  # type: ignore[union-attr]

    def rank_lost(self, line: str) -> None:
        """Answer 503 to all requests, since a rank has ended. From the thread that ends the process then."""
        self._rank_lost.set()
        lost = RequestError(503, "a rank of this server has ended", code="failed")
        self.service.worker.fail(RankError(line), lost)
        with suppress(RuntimeError, AttributeError):  # the loop has ended, or not begun
            self._loop.call_soon_threadsafe(self.fail, RankError(line))  # type: ignore[union-attr]
            self._over.wait(LOST_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at once where the server is stopping already.

        `mlx.launch` sends SIGTERM to all ranks when one has ended: then the watch says which, and ends this process.
        """
        if launched() and self._rank_lost.wait(NOTICED_SECONDS):
            return
        if self.service.stopping:
            os._exit(128 + sig)
        self.service.stopping = True
        self._end()
        if self.service.under_way:
            say(
                f"zoo: finishing {pluralize(self.service.under_way, 'request')} for at most {STOP_SECONDS} s; again to end at once"
            )

    def run_to_end(self) -> None:
        """Serve until a signal or a failure, and end the process: with status 1, and the error, after a failure."""
        LineHandler.install("uvicorn.error", "asyncio")
        Connection.most = most_connections()
        self.run(listen(self._host, self._port))
        self._over.set()
        stopped = self.service.worker.stop(2)
        problem = None if self.problem is None else f"error: {in_words(self.problem)}"
        if launched():
            from zoo import rank_watch

            if problem is not None:
                rank_watch.fail(problem, 1)
            rank_watch.finish() if stopped else rank_watch.end_others(130)
        elif problem is not None:
            say(f"zoo: {problem}")
        # At once: a thread in a long call, for which nobody waits, would abort an interpreter that takes itself apart.
        os._exit(0 if self.problem is None else 1)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host; ZooError where one cannot."""
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(addresses):
            port = sockets[0].getsockname()[1] if sockets else port
            place: Any = (address[0], port, *address[2:])
            sockets.append(socket.create_server(place, family=family, backlog=MOST_CONNECTIONS))
    except OSError as error:
        for each in sockets:
            each.close()
        raise ZooError(f"cannot listen at {host} port {port}: {error.strerror}") from error
    return sockets


def most_connections() -> int:
    """How many connections there may be, once this process may open as many files as the system lets it.

    Each is a file, and as many may wait to be accepted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_CONNECTIONS
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return min(MOST_CONNECTIONS, soft // 4)
