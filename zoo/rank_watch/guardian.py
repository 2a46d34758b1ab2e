"""The guardian of a rank: a process beside it that watches over the ranks of a run. It is a script, and imports nothing of the zoo.

A rank cannot do this itself: MLX holds Python's lock while it connects the ranks, and a stopped process runs no thread.
The guardians of the other ranks are connected to that of rank 0. A guardian passes on the heartbeats of its rank. Rank 0's
guardian prints the one line with which a run ends, or rank 1's where rank 0 is lost, and tells the others to end.
A guardian ends no process but its own rank.

A message is a line of JSON, an object with one name of `CHECKS` and its value. A connection that gives anything else is
closed. Whoever can reach the port can say that it is a rank, so several connections may claim one. Once MLX has
connected the ranks, each proves itself by a text that only rank 0 and MLX's other ranks know; the others are closed.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

GRACE = 2.0  # seconds in which another rank may say why a rank has failed
ENDING = 5.0  # seconds that a rank has to end by itself
MESSAGE = 4000  # characters of an error
MOST_BYTES = 2**15  # of one message
MOST_CONNECTIONS = 256  # at rank 0, those of strangers included
LOST = "connection to a peer was lost"  # what MLX's ring raises on the neighbours of a rank that has ended

Check = Callable[[Any], bool]


def _number(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _text(length: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= length and value.isprintable()


def _list(*checks: Check) -> Check:
    def check(value: Any) -> bool:
        return len(value) == len(checks) and all(map(lambda one, item: one(item), checks, value))

    return lambda value: isinstance(value, list) and check(value)


_is_true = _number(1, 1)
CHECKS: dict[str, Check] = {
    "hello": _list(_number(1, 2**16), _text(40), _text(40)),  # a rank, its versions of the zoo and of mlx
    "met": _is_true,  # all ranks have come
    "connecting": _number(0, 10**6),  # the seconds in which no heartbeat is expected, 0 when they are over
    "proof": _text(64),
    "collectives": _number(0, 2**60),  # a heartbeat: how many a rank has called
    "go": _is_true,  # the others may go on, which wait for rank 0
    "error": _list(_text(MESSAGE), _number(1, 255)),  # a line, or "", and the exit status
    "done": _number(1, 2),  # a rank has finished its work, and waits for the others (1) or leaves (2)
    "end": _list(_text(MESSAGE + 100), _number(1, 255)),  # the line that was printed, and the exit status
}
FROM_MAIN = frozenset({"connecting", "proof", "collectives", "go", "error", "done"})
FROM_FIRST = frozenset({"met", "collectives", "go", "done", "end"})  # rank 0's guardian to the others
FROM_RANK = frozenset({"proof", "collectives", "error", "done"})  # theirs to rank 0's
TO_MAIN = frozenset({"met", "go", "done", "end"})


class Peer:
    """A connection, and what is known of the rank at its other end; messages are taken if their names are in `takes`."""

    def __init__(self, connection: socket.socket, takes: frozenset[str], rank: int = -1) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.takes, self.rank = connection, takes, rank
        self.silent = 0.0  # seconds
        self.collectives = 0
        self.done = self.proven = False
        self.proof = ""
        self._received = b""

    def send(self, name: str, value: Any = 1) -> None:
        """Send a message; a connection that is lost is found by `receive`."""
        with suppress(OSError):
            self.connection.sendall(json.dumps({name: value}, ensure_ascii=False).encode() + b"\n")

    def receive(self) -> list[tuple[str, Any]]:
        """The messages that have come. ConnectionError when the connection is closed or gives something else."""
        try:
            received = self.connection.recv(MOST_BYTES)
        except BlockingIOError:
            return []
        *lines, self._received = (self._received + received).split(b"\n")
        try:
            messages = [(name, value) for line in lines for [(name, value)] in [json.loads(line).items()]]
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConnectionError from error
        known = all(name in self.takes and CHECKS[name](value) for name, value in messages)
        if not (received and known) or len(self._received) > MOST_BYTES:
            raise ConnectionError
        self.silent = 0.0
        return messages


class Guardian:
    """Watches over a rank by its connection, and over the other ranks.

    `seconds` are those in which all ranks have to come, in which each has to be heard, and in which ranks that are out of
    step have to call a collective. `place` is the host and the port of rank 0, or the file to which it writes the number
    of a free port. `versions` are those of the zoo and of mlx.
    """

    def __init__(
        self, main: Peer, rank: int, size: int, place: list[Any], seconds: list[float], versions: list[str]
    ) -> None:
        self.main, self.rank, self.size, self.versions = main, rank, size, versions
        (self.host, self.port), (self.start, self.silence, self.stall) = place, seconds
        self.interval = min(self.silence / 5, 1.0)
        self.parent = os.getppid()
        self.peers: list[Peer] = []
        self.server: socket.socket | None = None
        self.late = time.monotonic() + self.start  # to come, to be connected, or to be done
        self.met = self.connecting = False
        self.left: set[int] = set()  # ranks that have finished their work, and closed their connections
        self.beat = 0.0  # when this guardian sent a heartbeat for its rank
        self.error: tuple[float, str, int] | None = None  # when the run ends, the line, the exit status
        self.failed = -1  # the rank whose error it is
        self.counts: list[int] = []  # of collectives, and when they changed
        self.changed = 0.0

    def run(self) -> NoReturn:
        """Watch until the rank ends, or all have to."""
        before = time.monotonic()
        while True:
            if not self.met:
                self._meet()
            known = [self.main, *self.peers]
            sockets = [peer.connection for peer in known] + ([self.server] if self.server else [])
            waits = self.interval if self.met or self.peers or self.server else 0.05
            readable = select.select(sockets, [], [], waits)[0]
            now = time.monotonic()
            # A process that was frozen, with the others, has heard nothing meanwhile: that is not their silence.
            passed, before = min(now - before, 2 * self.interval), now
            for peer in known:
                peer.silent += passed
                if peer.connection in readable and peer.connection.fileno() >= 0:
                    self._take(peer, now)
            if self.server in readable:
                self._admit()
            self._judge(now)

    def _meet(self) -> None:
        """Listen on rank 0; on the others, connect to rank 0, or try it again later."""
        if self.rank == 0 and self.server is None:
            self._listen()
        elif self.rank and not self.peers:
            with suppress(OSError, ValueError):
                port = self.port
                if isinstance(port, str):
                    with open(port) as file:
                        port = int(file.read())
                connection = socket.create_connection((self.host, port), timeout=1.0)
                # Where nobody listens yet at a port that a client may get, the client can reach itself.
                if connection.getsockname() != connection.getpeername():
                    self.peers = [Peer(connection, FROM_FIRST, rank=0)]
                    self._tell("hello", [self.rank, *self.versions])

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            port = self.port if isinstance(self.port, int) else 0
            self.server = socket.create_server((self.host, port), family=family)
            if isinstance(self.port, str):
                with open(self.port + ".new", "w") as file:
                    file.write(str(self.server.getsockname()[1]))
                os.replace(self.port + ".new", self.port)
        except OSError as error:
            place, hint = (
                f"{self.host}:{self.port}",
                "; is another run there?" * (error.errno == errno.EADDRINUSE),
            )
            self._end(f"error: rank 0 cannot wait for the others at {place} ({error.strerror}){hint}")

    def _admit(self) -> None:
        """Accept a connection of which nothing is known. Of too many, the one that has been silent for longest is closed."""
        assert self.server is not None
        with suppress(OSError):
            self.peers.append(Peer(self.server.accept()[0], frozenset({"hello"})))
        unknown = [peer for peer in self.peers if peer.rank < 0]
        if len(self.peers) > MOST_CONNECTIONS and unknown:
            self._close(max(unknown, key=lambda peer: peer.silent))

    def _close(self, peer: Peer) -> None:
        if peer.done:
            self.left.add(peer.rank)
        peer.connection.close()
        self.peers.remove(peer)

    def _take(self, peer: Peer, now: float) -> None:
        """Act on what has come from a connection."""
        try:
            for name, value in peer.receive():
                if peer is self.main:
                    self._hear_main(name, value, now)
                elif self.rank:
                    self._hear_first(name, value)
                elif peer.connection.fileno() >= 0:  # the message before was no reason to close it
                    self._hear_rank(peer, name, value, now)
        except OSError:
            if peer is self.main:
                self._leave()  # the rank has ended
            self._lose(peer, f"error: rank {peer.rank} ended unexpectedly; all ranks end")

    def _hear_main(self, name: str, value: Any, now: float) -> None:
        if name in (FROM_RANK if self.rank else ("collectives", "go")):
            self._tell(name, value)
        if name == "collectives":
            self.main.collectives = value
        elif name == "connecting":
            self.connecting, self.late = value > 0, now + value
        elif name == "proof":
            self.main.proof = value
            self._choose()
        elif name == "done":
            self.main.done, self.late = True, now + self.start
            if value == 2 and self.rank == 0:
                self._tell("done")
        elif name == "error" and not self.met:
            self._end(self._absent(), value[1])
        elif name == "error" and self.failed != self.rank:  # the first one is the cause
            self.failed = self.rank
            line = f"rank {self.rank}: {value[0]}" if self.rank and value[0] else value[0]
            # Meanwhile rank 0's guardian prints it, or sees which rank was lost.
            patience = 2 * GRACE if self.rank else GRACE * (LOST in value[0])
            self.error = now + patience, line, value[1]

    def _tell(self, name: str, value: Any = 1) -> None:
        """Send a message to all ranks that this guardian is connected to."""
        for peer in self.peers:
            if peer.rank >= 0:
                peer.send(name, value)

    def _hear_first(self, name: str, value: Any) -> None:
        """Act on a message of rank 0's guardian."""
        if name == "end":
            self._end("", value[1])
        elif name == "collectives":
            self.peers[0].collectives = value
        else:
            self.met |= name == "met"
            self.peers[0].done |= name == "done"
            self.main.send(name)

    def _hear_rank(self, peer: Peer, name: str, value: Any, now: float) -> None:
        """Act on a message to rank 0's guardian."""
        if name == "hello":
            rank, *versions = value
            if rank >= self.size:
                self._close(peer)
                return
            peer.rank, peer.takes = rank, FROM_RANK
            for what, theirs, ours in zip(("zoo", "mlx"), versions, self.versions, strict=True):
                if theirs != ours:
                    self._end(f"error: {differs(rank, f'the {what} version', theirs, ours)}")
            if self.met:
                peer.send("met")
        elif name == "collectives":
            peer.collectives = value
        elif name == "done":
            peer.done = True
        elif name == "proof":
            peer.proof = value
            self._choose()
        elif name == "error" and self.error is None and self._claims(peer.rank) == [peer]:
            self.error = now + GRACE, value[0] and f"rank {peer.rank}: {value[0]}", value[1]
            self.failed = peer.rank

    def _choose(self) -> None:
        """On rank 0: close each connection whose proof is wrong, and those that claim a rank which another has proven to be."""
        if self.rank or not self.main.proof:
            return
        for peer in self.peers:
            peer.proven = peer.proof == self.main.proof
        proven = {peer.rank for peer in self.peers if peer.proven}
        for peer in list(self.peers):
            if not peer.proven and (peer.proof or peer.rank in proven):
                self._close(peer)
        if len(proven) == self.size - 1 and self.server is not None:
            self.server.close()
            self.server = None

    def _claims(self, rank: int) -> list[Peer]:
        return [peer for peer in self.peers if peer.rank == rank]

    def _lose(self, peer: Peer, line: str) -> None:
        """A connection is closed or silent. All ranks end, unless it may be a stranger's, or the rank has finished its work."""
        wanted = self.met and not peer.done and peer.rank not in (-1, self.failed)
        if wanted and self._claims(peer.rank) == [peer]:
            self._end(line, speaks=self.rank == 0 or (self.rank == 1 and peer.rank == 0))
        self._close(peer)

    def _absent(self) -> str:
        """The line about a rank that has not come, "" where another rank says it."""
        if self.rank == 0:
            rank = next((rank for rank in range(1, self.size) if not self._claims(rank)), 0)
            return f"error: rank {rank} did not come; all ranks end" if rank else ""
        alone = self.rank == 1 and not self.peers
        return f"error: rank 0 did not come at {self.host}:{self.port}; all ranks end" if alone else ""

    def _judge(self, now: float) -> None:
        """Let the run begin once all ranks have come, and end for what has gone on for too long."""
        others = range(1, self.size) if self.rank == 0 else ()
        if self.rank == 0 and not self.met and all(map(self._claims, others)):
            self.met = True
            self._tell("met")
            self.main.send("met")
        patience = now - (GRACE if self.rank else 0)  # for the line of rank 0
        if not self.met and patience > self.late:
            self._end(self._absent())
        if self.error is not None and now >= self.error[0]:
            self._end(self.error[1], self.error[2])
        for peer in list(self.peers):
            if peer.silent > self.silence:
                seconds = f"{self.silence:g} s"
                self._lose(peer, f"error: rank {peer.rank} has not answered for {seconds}; all ranks end")
        if self.connecting:
            if now - self.beat >= self.interval:
                self.beat = now
                self._tell("collectives", self.main.collectives)
            if patience > self.late and self.error is None:
                self._end("" if self.rank else "error: the ranks were not connected in time; all ranks end")
        elif self.main.silent > self.silence + 2 * GRACE:
            self._end("")  # the other ranks say it
        if self.rank == 0 and self.main.done:
            done = self.left.union(peer.rank for peer in self.peers if peer.done)
            missing = [rank for rank in others if rank not in done]
            if missing and now > self.late:
                self._end(f"error: rank {missing[0]} did not end with the others")
            if not missing:
                self._tell("done")
                self.main.send("done")
        self._compare(now)

    def _compare(self, now: float) -> None:
        """On rank 0: ranks are out of step when they have called different numbers of collectives, and none calls another."""
        proven = [peer for peer in self.peers if peer.proven and not peer.done]
        ours, counts = self.main.collectives, [peer.collectives for peer in proven]
        if [ours, *counts] != self.counts:
            self.counts, self.changed = [ours, *counts], now
        elif now - self.changed > self.stall:
            for peer in proven:
                if (theirs := peer.collectives) != ours:
                    line = f"rank {peer.rank} is out of step for {self.stall:g} s: it has called {theirs} collectives"
                    self._end(f"error: {line}, rank 0 {ours}; all ranks end")

    def _end(self, line: str, status: int = 1, speaks: bool = True) -> NoReturn:
        """End all ranks from rank 0, or this one: by a message to it, and if it does not end by a signal."""
        if line and speaks:
            os.write(2, f"zoo: {line}\n".encode())
        if self.rank == 0:
            self._tell("end", ["", status])
        else:
            self._tell("done", 2)  # so that rank 0, if it still runs, does not say that this one is lost
        self.main.send("end", [line, status])
        self._leave()

    def _leave(self) -> NoReturn:
        """End once this rank has ended, and the other guardians have read what was sent. Kill a rank that does not end."""
        waiting = {self.main.connection, *(peer.connection for peer in self.peers)}
        for peer in self.peers:
            with suppress(OSError):
                peer.connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + (ENDING if self.main.silent < GRACE else GRACE / 2)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for connection in select.select([*waiting], [], [], left)[0]:
                try:
                    closed = not connection.recv(MOST_BYTES)
                except OSError:
                    closed = True
                if closed:
                    waiting.remove(connection)
                if connection is self.main.connection:  # a stranger may never close its connection
                    deadline = min(deadline, time.monotonic() + GRACE / 2)
        if self.main.connection in waiting and os.getppid() == self.parent:
            os.kill(self.parent, signal.SIGKILL)
        sys.exit()


def differs(rank: int, what: str, theirs: object, ours: object) -> str:
    """The message about a rank that has not the same as rank 0."""
    return f"rank {rank} has {what} {theirs!s:.80}, rank 0 has {ours!s:.80}; all ranks must have the same"


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    Guardian(Peer(socket.socket(fileno=int(sys.argv[1])), FROM_MAIN), **json.loads(sys.argv[2])).run()
