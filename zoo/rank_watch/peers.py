"""Connections between the ranks beside MLX's: how they are made, and the messages on them."""

from __future__ import annotations

import errno
import json
import os
import queue
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo.errors import RankError, in_words

MOST = 2**16  # bytes of one message
ABSENT = "rank 0 did not come"


class Peer:
    """A connection to another rank. Messages are JSON objects, one a line; an empty line is a heartbeat."""

    def __init__(self, connection: socket.socket, rank: int = -1) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.rank = connection, rank
        self.facts: dict[str, Any] = {}  # versions and process, once the rank is let in
        self.mail: queue.Queue[Any] = queue.Queue()  # what the other rank's main thread sent to this one's
        self.silent = 0.0  # seconds
        self.done = False  # it has finished its work
        self.collectives = 0  # that it has called, as it last said
        self.error: tuple[str, int, float] | None = None  # its message, exit status, and when it came
        self._received = b""

    @property
    def open(self) -> bool:
        """Whether the connection is there."""
        return self.connection.fileno() >= 0

    def send(self, **message: Any) -> None:
        """Send a message, or a heartbeat; a connection that is lost is found by `receive`."""
        with suppress(OSError):
            self.connection.sendall((json.dumps(message) if message else "").encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come. ConnectionError when the connection is closed or gives something else."""
        try:
            received = self.connection.recv(MOST)
        except BlockingIOError:
            return []
        *lines, self._received = (self._received + received).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines if line]
        except (ValueError, RecursionError) as error:
            raise ConnectionError from error
        if not received or len(self._received) > MOST or not all(isinstance(m, dict) for m in messages):
            raise ConnectionError
        self.silent = 0.0
        return messages


def accept(host: str, port: int | Path, size: int, deadline: float, facts: Mapping[str, Any]) -> list[Peer]:
    """Accept, on rank 0, the connections of all other ranks, which must have the same versions.

    If `port` is a file, rank 0 listens on a free port and writes its number to the file.
    """
    came: dict[int, Peer] = {}
    unknown: list[Peer] = []
    try:
        server = socket.create_server(
            (host, port if isinstance(port, int) else 0),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        )
        if isinstance(port, Path):
            whole = port.with_suffix(".new")
            whole.write_text(str(server.getsockname()[1]), encoding="utf-8")
            whole.replace(port)
    except OSError as error:
        raise RankError(
            f"rank 0 cannot wait for the others at {host}:{port} ({error.strerror})"
            + ("; is another run there?" if isinstance(port, int) else "")
        ) from error
    with server, suppress(SystemExit):  # SIGTERM, which `mlx.launch` sends when a rank has ended
        while len(came) < size - 1 and (left := deadline - time.monotonic()) > 0:
            readable = select.select([server, *(peer.connection for peer in unknown)], [], [], left)[0]
            if server in readable:
                unknown.append(Peer(server.accept()[0]))
            for peer in [peer for peer in unknown if peer.connection in readable]:
                try:
                    peer.facts = next(iter(peer.receive()), {})
                except OSError:
                    peer.connection.close()
                rank = peer.facts.get("rank")
                if type(rank) is int and 0 < rank < size and rank not in came:
                    came[rank], peer.rank = peer, rank
                elif peer.facts:
                    peer.connection.close()
                if peer.facts or not peer.open:
                    unknown.remove(peer)
    missing = next((rank for rank in range(1, size) if rank not in came), None)
    found = [] if missing is None else [f"rank {missing} did not come; all ranks end"]
    peers = [came[rank] for rank in sorted(came)]
    for peer in peers:
        for name in ("zoo", "mlx"):
            if (theirs := peer.facts.get(name)) != facts[name]:
                found.append(differs(peer.rank, f"the {name} version", theirs, facts[name]))
    for peer in peers:
        peer.send(**({"end": 1} if found else facts))
    if found:
        raise RankError(found[0])
    return peers


def connect(host: str, port: int | Path, rank: int, deadline: float, facts: Mapping[str, Any]) -> Peer:
    """Connect another rank to rank 0. If `port` is a file, wait until rank 0 has written the number to it."""
    while True:
        try:
            number = port if isinstance(port, int) else int(port.read_text(encoding="utf-8"))
            connection = socket.create_connection((host, number), timeout=1.0)
            # Where nobody listens yet at a port that a client may get, the client can reach itself.
            if connection.getsockname() == connection.getpeername():
                connection.close()
                raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            peer = Peer(connection, rank=0)
        except (OSError, ValueError) as error:
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise RankError(f"{ABSENT} at {host}:{port} ({in_words(error)}); all ranks end") from error
        peer.send(rank=rank, **facts)
        return peer


def differs(rank: int, what: str, theirs: object, ours: object) -> str:
    """The message about a rank that has not the same as rank 0."""
    return f"rank {rank} has {what} {theirs!s:.80}, rank 0 has {ours!s:.80}; all ranks must have the same"
