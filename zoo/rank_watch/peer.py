"""A connection between two ranks, and the messages on it.

A message is a line of JSON: a list of a name in `FORMS` and of values of these types. A connection that gives anything else is closed.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any

MESSAGE = 4000  # characters of an error
MOST_BYTES = 2**15  # of one message

FORMS: dict[str, tuple[type, ...]] = {
    "hello": (int,),  # to rank 0: a rank has come
    "met": (),  # from rank 0: all have
    "beat": (),  # a heartbeat
    "connecting": (int,),  # the seconds within which the next heartbeat comes
    "go": (),  # from rank 0: the others may go on, which wait for it
    "error": (str, int),  # to rank 0: a line, or "", and the exit status
    "done": (),  # a rank has finished its work; from rank 0: all have
    "end": (int,),  # from rank 0: the exit status
}


class Peer:
    """A connection, and what is known of the rank at its other end: `rank` is -1 until it has come."""

    def __init__(self, connection: socket.socket, silence: float, rank: int = -1) -> None:
        """The rank is given up when it is silent for `silence` seconds."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.rank, self.silence = connection, rank, silence
        self.silent = 0.0  # seconds
        self.limit = silence  # until its next message
        self.done = False
        self._received = b""
        self._sending = threading.Lock()

    def send(self, *message: object) -> None:
        """Send a message; a connection that is lost is found by `receive`."""
        with suppress(OSError), self._sending:
            self.connection.sendall(json.dumps(message, ensure_ascii=False).encode() + b"\n")

    def receive(self) -> list[list[Any]]:
        """The messages that have come. ConnectionError when the connection is closed or gives something else."""
        try:
            received = self.connection.recv(MOST_BYTES)
        except BlockingIOError:
            return []
        *lines, self._received = (self._received + received).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as error:
            raise ConnectionError from error
        if not (received and all(map(is_message, messages))) or len(self._received) > MOST_BYTES:
            raise ConnectionError
        if messages:
            self.silent = 0.0
        return messages


def is_message(value: object) -> bool:
    """Whether a value has one of `FORMS`, with texts that can be printed, and numbers within bounds."""
    if not (isinstance(value, list) and value and isinstance(value[0], str) and value[0] in FORMS):
        return False
    name, *values = value
    if [type(item) for item in values] != [*FORMS[name]]:
        return False
    least, most = (1, 255) if name in ("error", "end") else (0, 10**6)
    return all(
        item.isprintable() and len(item) <= MESSAGE if isinstance(item, str) else least <= item <= most
        for item in values
    )
