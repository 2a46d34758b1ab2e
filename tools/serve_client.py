"""A client of `zoo serve` for measurements: the server's process, and requests that may be cut off or read slowly."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import urlopen

import h11

from zoo.cpu.blas import THREADS

Made = TypeVar("Made")
START_SECONDS = 600  # for a server to load its model, pauses of the process included
STOP_SECONDS = 40
TRIES = 4
PAUSE = 0.5  # seconds after which a thread that sleeps for a moment was paused
SLOW_BUFFER = 4096  # bytes that the system receives for a reader that is slow


class Clock:
    """Seconds in which this process ran: a pause of the whole machine, or of this process, does not count."""

    TICK = 0.05

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self) -> None:
        """Advance until cancelled."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(self.TICK)
            now = time.monotonic()
            self.seconds += min(now - last, 1.0)
            last = now


@dataclass(frozen=True)
class Reader:
    """How a client reads an answer.

    It closes the connection after `leaves` seconds, reads a byte a second for `slow` seconds, or reads nothing for `stalls`
    seconds. None of a kind: it does not.
    """

    leaves: float | None = None
    slow: float | None = None
    stalls: float | None = None


@dataclass
class Reply:
    """What came of one request. `status` 0: no whole answer came. Times are in seconds since the request was sent.

    `events` are those of a stream, with the `times` at which they came; `silence` is the longest time without a byte.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    silence: float = 0.0
    comments: int = 0
    whole: bool = False

    @property
    def is_stream(self) -> bool:
        """Whether the answer came as events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def failed(self) -> bool:
        """Whether a stream ended with an error."""
        return bool(self.events) and "error" in self.events[-1]

    def json(self) -> Any:
        """The JSON of an answer that is no stream."""
        return json.loads(self.body)


async def post(
    address: str,
    path: str,
    body: Mapping[str, Any],
    *,
    reader: Reader | None = None,
    clock: Clock | None = None,
    arrived: Callable[[float], None] | None = None,
    key: str = "none",
) -> Reply:
    """Send one request on a connection of its own, and read its answer; a reader that leaves gets what it has by then.

    `arrived` is called with `time.perf_counter()` at each event of a stream.
    """
    how, reply = reader or Reader(), Reply()
    sock = socket.socket()
    sock.setblocking(False)
    if how.slow is not None or how.stalls is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER)
    url = urlsplit(address)
    await asyncio.get_running_loop().sock_connect(sock, (url.hostname, url.port))
    incoming, outgoing = await asyncio.open_connection(sock=sock, limit=SLOW_BUFFER)
    try:
        async with asyncio.timeout(how.leaves):
            outgoing.write(_head(url.netloc, path, body, key))
            await outgoing.drain()
            await _read(incoming, _Events(reply, arrived), how, clock)
    except (TimeoutError, ConnectionError, h11.RemoteProtocolError):
        pass
    finally:
        outgoing.transport.abort()
    return reply


def _head(host: str, path: str, body: Mapping[str, Any], key: str) -> bytes:
    data = json.dumps(body).encode()
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {key}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


async def _read(incoming: asyncio.StreamReader, events: _Events, how: Reader, clock: Clock | None) -> None:
    """Read an answer to its end."""
    parser, reply = h11.Connection(h11.CLIENT), events.reply
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "server")]))
    parser.send(h11.EndOfMessage())
    now = time.perf_counter if clock is None else lambda: clock.seconds
    began = last = now()
    await asyncio.sleep(how.stalls or 0)
    while True:
        slow = how.slow is not None and now() - began < how.slow
        if slow:
            await asyncio.sleep(1)
        data = await incoming.read(1 if slow else 2**16)
        if not (slow or how.stalls):
            reply.silence = max(reply.silence, now() - last)
        last = now()
        parser.receive_data(data)
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Response):
                reply.status = event.status_code
                reply.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                if reply.is_stream:
                    events.add(bytes(event.data), last - began)
                else:
                    reply.body += bytes(event.data)
            else:
                reply.whole = isinstance(event, h11.EndOfMessage) and (
                    not reply.is_stream or events.done or reply.failed
                )
                return


class _Events:
    """Parses server-sent events as they come; `done` once the last has come."""

    def __init__(self, reply: Reply, arrived: Callable[[float], None] | None) -> None:
        self.reply, self.arrived, self.rest, self.done = reply, arrived, b"", False

    def add(self, data: bytes, seconds: float) -> None:
        *blocks, self.rest = (self.rest + data).split(b"\n\n")
        for block in blocks:
            if block.startswith(b":"):
                self.reply.comments += 1
            elif block == b"data: [DONE]":
                self.done = True
            else:
                event = json.loads(block.removeprefix(b"data: "))
                self.reply.events.append(event)
                self.reply.times.append(seconds)
                if self.arrived is not None:
                    self.arrived(time.perf_counter())


class Process:
    """A server in a process of its own; use it as a context. `address` is "http://127.0.0.1:8080"."""

    def __init__(
        self,
        command: Sequence[str],
        address: re.Pattern[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`address`: what finds the address in a line of the error stream, all of which `log` gets."""
        self.command, self._pattern, self._log = command, address, log
        self._environment = {**os.environ, **(environment or {})}
        self._found: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Process:
        self.process = subprocess.Popen(
            self.command,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=self._environment,
        )
        self._thread = threading.Thread(target=self._read_log, daemon=True)
        self._thread.start()
        try:
            address = self._found.get(timeout=START_SECONDS)
        except queue.Empty:
            address = None
        if address is None:
            self.stop()
            raise SystemExit(f"the server did not start: see {self._log}")
        self.address = address
        return self

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self._log.open("w", encoding="utf-8") as file:
            for line in self.process.stderr:
                file.write(line)
                file.flush()
                if match := self._pattern.search(line):
                    self._found.put(match[0])
        self._found.put(None)

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """End the process as a person would; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def state(self) -> dict[str, int]:
        """Threads, open files and bytes of memory of the process.

        Without the socket to each of its child processes, which render chat templates: more of them start under load.
        """
        folder = Path(f"/proc/{self.process.pid}")
        children = [pid for task in (folder / "task").glob("*/children") for pid in task.read_text().split()]
        pages = int((folder / "statm").read_text().split()[1])
        return {
            "threads": len(list((folder / "task").iterdir())),
            "files": len(list((folder / "fd").iterdir())) - len(children),
            "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        }

    def gauges(self) -> dict[str, float]:
        """The values of /metrics without labels, by name."""
        with urlopen(f"{self.address}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#") and "{" not in line)
        return {name: float(value) for name, value in pairs}


def zoo_serve(source: str, log: Path, *options: str, threads: int | None = None) -> Process:
    """`zoo serve SOURCE` at a free port, with so many threads of the BLAS (its default)."""
    command = [sys.executable, "-m", "zoo", "serve", source, "--port", "0", *options]
    environment = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    return Process(command, re.compile(r"(?<= at )http://[^/]+(?=/$)"), log, environment)


def unpaused(run: Callable[[], Made], processes: Sequence[subprocess.Popen[str]]) -> Made:
    """The value of `run`, which is called again where this process or one of these was paused (SIGSTOP) meanwhile.

    SystemExit where that happens at each of `TRIES` calls.
    """
    for _ in range(TRIES):
        with _Pauses([process.pid for process in processes]) as pauses:
            value = run()
        if not pauses.seen:
            return value
        print("a process was paused: measured again", file=sys.stderr, flush=True)
    raise SystemExit(f"processes were paused in each of {TRIES} measurements")


class _Pauses:
    """Watches processes in a thread; `seen`: whether one of them, or this one, was paused."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids, self.seen, self._ended = pids, False, threading.Event()

    def __enter__(self) -> _Pauses:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(0.05):
            now = time.monotonic()
            stats = (Path(f"/proc/{pid}/stat").read_text() for pid in self.pids)
            stopped = any(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
            self.seen |= stopped or now - last > PAUSE
            last = now
