"""A rank's part of the watch: a thread that hears the other ranks, at rank 0, or rank 0, at the others."""

from __future__ import annotations

import errno
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from zoo.machine import LAUNCHED, LOST
from zoo.rank_watch import watchdog
from zoo.rank_watch.peer import Peer

GRACE = 2.0  # seconds in which another rank may say why a rank has failed
MOST_CONNECTIONS = 1024  # at rank 0, those of strangers included


class Watch:
    """The watch of one rank. Its thread sends heartbeats, and ends this process when rank 0 says so, or is lost.

    `host` and `port` are where rank 0 listens; a path is the file to which rank 0 writes a free port. All ranks have to come
    within `start` seconds, and each has to be heard within `silence` seconds.
    """

    def __init__(
        self, rank: int, host: str, port: int | Path, size: int, *, start: float, silence: float
    ) -> None:
        self.rank, self.size, self.start, self.silence = rank, size, start, silence
        self.met, self.done = threading.Event(), threading.Event()
        self.before_end: Callable[[str], None] = lambda line: None  # called with the line once it is printed
        self._host, self._port = host, port
        self._interval = min(silence / 5, 1.0)
        self._peers: list[Peer] = []
        self._server: socket.socket | None = None
        self._late = time.monotonic() + start  # for all to come, or to be done
        self._finishing = False  # rank 0 has done its work
        self._finished: set[int] = set()  # the others that have
        self._error: tuple[float, str, int] | None = (
            None  # of another rank: when the run ends, its line, the exit status
        )
        self._released: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._connecting = False
        self._beating, self._feeding, self.ending = threading.Lock(), threading.Lock(), threading.Lock()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=sys.__stderr__ or subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in LAUNCHED},
        )
        threading.Thread(target=self._run, name="zoo-ranks", daemon=True).start()

    def _feed(self, seconds: float, if_silent: str = "", if_ended: str = "", *, last: bool = False) -> None:
        """Tell the process beside this rank how long it may be silent, and what to say then or when it ends before.

        Once this rank ends, only the `last` call counts: nothing more is to be said.
        """
        assert self._watchdog.stdin is not None
        order = json.dumps([seconds, if_silent, if_ended]).encode() + b"\n"
        with self._feeding:
            if self.ending.locked() and not last:
                return
            try:
                os.write(self._watchdog.stdin.fileno(), order)
                return
            except OSError:
                if last:
                    return
        self._end(f"error: the process that watches over rank {self.rank} has ended; all ranks end")

    def _beat(self) -> None:
        with self._beating:
            if not self._connecting:
                self._feed(self.silence + 2 * GRACE)
                self.tell("beat")

    def _run(self) -> None:
        before, sent = time.monotonic(), 0.0
        while True:
            if not self.met.is_set():
                self._meet()
            sockets = [peer.connection for peer in self._peers] + ([self._server] if self._server else [])
            readable = select.select(sockets, [], [], self._interval if sockets else 0.05)[0]
            now = time.monotonic()
            if now - sent >= self._interval:
                sent = now
                self._beat()
            # The machine may have suspended all ranks. Such a gap counts only in part as silence of the others.
            passed, before = min(now - before, self.silence / 2), now
            for peer in list(self._peers):
                peer.silent += passed
                if peer.connection in readable:
                    self._read(peer, now)
                elif peer.silent > peer.limit:
                    self._lose(peer, f"has not answered for {peer.limit:g} s")
            if self._server in readable:
                self._admit()
            self._judge(now)

    def _meet(self) -> None:
        """Listen on rank 0; on the others, connect to rank 0, or try it again later."""
        if self.rank == 0 and self._server is None:
            self._listen()
        elif self.rank and not self._peers:
            with suppress(OSError, ValueError):
                port = self._port if isinstance(self._port, int) else int(self._port.read_text())
                connection = socket.create_connection((self._host, port), timeout=1.0)
                # Where nobody listens yet at a port that a client may get, the client can reach itself.
                if connection.getsockname() != connection.getpeername():
                    self._peers = [Peer(connection, self.silence, rank=0)]
                    self.tell("hello", self.rank)

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            port = self._port if isinstance(self._port, int) else 0
            self._server = socket.create_server((self._host, port), family=family)
            if isinstance(self._port, Path):
                new = self._port.with_name(self._port.name + ".new")
                new.write_text(str(self._server.getsockname()[1]))
                new.replace(self._port)
        except OSError as error:
            hint = "; is another run there?" * (error.errno == errno.EADDRINUSE)
            place = f"{self._host}:{self._port} ({error.strerror}){hint}"
            self._end(f"error: rank 0 cannot wait for the others at {place}")

    def _admit(self) -> None:
        """Accept a connection of which nothing is known, unless there are too many."""
        with suppress(OSError):
            connection = self._server.accept()[0]  # type: ignore[union-attr]
            if len(self._peers) < MOST_CONNECTIONS:
                self._peers.append(Peer(connection, self.silence))
            else:
                connection.close()

    def _read(self, peer: Peer, now: float) -> None:
        """Act on what has come from a connection. A rank whose connection is closed has ended."""
        try:
            for name, *values in peer.receive():
                peer.limit = values[0] + GRACE if name == "connecting" else self.silence
                if name in ("beat", "connecting"):
                    continue
                if self.rank == 0:
                    self._hear_rank(peer, now, name, *values)
                else:
                    self._hear_first(peer, name, *values)
        except OSError:
            self._lose(peer, "ended unexpectedly")

    def _hear_first(self, first: Peer, name: str, *values: int) -> None:
        """Act on a message of rank 0."""
        if name == "end":
            self._end("", values[0])
        elif name == "go":
            self._released.put(None)
        elif name in ("met", "done"):
            first.done |= name == "done"
            (self.done if name == "done" else self.met).set()
        else:
            raise ConnectionError

    def _hear_rank(self, peer: Peer, now: float, name: str, *values: str | int) -> None:
        """Act on a message to rank 0. One that claims a rank which has come, or none of this run, is refused."""
        if peer.rank < 0:
            if name != "hello" or values[0] not in self._absent():
                raise ConnectionError
            peer.rank = int(values[0])
        elif name == "done":
            peer.done = True
            self._finished.add(peer.rank)
            self._missing()
        elif name == "error":
            line, status = str(values[0]), int(values[1])
            # The first cause is kept, unless it only says that a peer was lost.
            if self._error is None or (LOST in self._error[1] and LOST not in line):
                self._error = now + GRACE, line and f"rank {peer.rank}: {line}", status
        else:
            raise ConnectionError

    def _absent(self) -> list[int]:
        """On rank 0: the ranks that have not come."""
        come = {peer.rank for peer in self._peers}
        return [rank for rank in range(1, self.size) if rank not in come]

    def _lose(self, peer: Peer, what: str) -> None:
        """A connection is closed or silent. All ranks end, unless it is a stranger's, or the rank has finished its work."""
        if self.met.is_set() and peer.rank >= 0 and not peer.done:
            says = self.rank <= 1  # rank 1 speaks for those that have lost rank 0
            self._end(f"error: rank {peer.rank} {what}; all ranks end" if says else "")
        peer.connection.close()
        self._peers.remove(peer)
        if self.rank:
            time.sleep(0.05)  # before the next try

    def _judge(self, now: float) -> None:
        """Let the run begin once all ranks have come, and end for what has gone on for too long."""
        if self.rank:
            if not self.met.is_set() and now > self._late + GRACE:  # for the line of rank 0
                self._end(self._absence())
            return
        if not self.met.is_set():
            if not self._absent():
                self._begin()
            elif now > self._late:
                self._end(self._absence())
        if self._error is not None and now >= self._error[0]:
            self._end(*self._error[1:])
        if self._finishing and (missing := self._missing()) and now > self._late:
            self._end(f"error: rank {missing[0]} did not end with the others")

    def _missing(self) -> list[int]:
        """On rank 0: the ranks that have not done their work. The others end once all have."""
        missing = [rank for rank in range(1, self.size) if rank not in self._finished]
        if self._finishing and not missing:
            self.tell("done")
            self.done.set()
        return missing

    def _begin(self) -> None:
        """On rank 0: all ranks have come, and nobody else is admitted."""
        assert self._server is not None
        self._server.close()
        self._server = None
        for peer in [peer for peer in self._peers if peer.rank < 0]:
            self._lose(peer, "")
        self.tell("met")
        self.met.set()

    def _absence(self) -> str:
        """The error message about a rank that did not connect; "" where another rank prints it."""
        if self.rank == 0:
            return f"error: rank {self._absent()[0]} did not come; all ranks end"
        alone = self.rank == 1 and not self._peers
        return f"error: rank 0 did not come at {self._host}:{self._port}; all ranks end" if alone else ""

    def tell(self, name: str, *values: str | int) -> None:
        """Send a message to rank 0, or from rank 0 to all others."""
        for peer in list(self._peers):
            if peer.rank >= 0:
                peer.send(name, *values)

    def fail(self, line: str, status: int) -> NoReturn:
        """End all ranks with this line, from any thread."""
        if not self.met.is_set():
            self._end(self._absence(), status)
        if self.rank:
            self.tell("error", line, status)
            time.sleep(3 * GRACE)  # rank 0 prints the line and ends this process
            line = line and f"rank {self.rank}: {line}"
        self._end(line, status)

    def _end(self, line: str, status: int = 1) -> NoReturn:
        """Print a line, if there is one, and end all ranks from rank 0, or this one."""
        if not self.ending.acquire(blocking=False):
            time.sleep(4 * GRACE)  # another thread does it
        self._feed(2 * GRACE, last=True)
        if line:
            say(line)
        if self.rank == 0:
            self.tell("end", status)
        self.before_end(line)
        if self.rank == 0:
            time.sleep(GRACE / 4)  # until the others have read it
        os._exit(status)

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """A context in which MLX connects the ranks, within `start` seconds. It holds Python's lock, so that no thread runs.

        Meanwhile SIGTERM, which `mlx.launch` sends when a rank has ended, ends this process: no handler would run.
        """
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, signal.SIG_DFL) if main else None
        lines = ("the ranks were not connected in time", "a rank ended while MLX connected the ranks")
        with self._beating:
            self._connecting = True
            self.tell("connecting", int(self.start) + 1)
            if self.rank == 0:
                self._feed(self.start, *(f"error: {line}; all ranks end" for line in lines))
            else:
                self._feed(self.start + GRACE)  # for the line of rank 0
        try:
            yield
        finally:
            self._connecting = False
            self._beat()
            if main:
                signal.signal(signal.SIGTERM, before)

    def release(self) -> None:
        """On rank 0: let the others go on, which are in `wait`."""
        self.tell("go")

    def wait(self) -> None:
        """On the other ranks: wait for rank 0, without a bound but that it lives, and without using the processor."""
        self._released.get()

    def finish(self) -> None:
        """This rank has done its work. `done` is set when all have."""
        if self.rank:
            self.tell("done")
        else:
            self._late, self._finishing = time.monotonic() + self.start, True
            self._missing()


def say(line: str) -> None:
    """Print a line of the zoo to the error stream that the process was started with, from any thread."""
    if (stream := sys.__stderr__) is not None:
        os.write(stream.fileno(), f"zoo: {line}\n".encode())
