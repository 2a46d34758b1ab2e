"""Watches over the ranks of a run: where one ends, hangs or differs, all end, with one line that names it. No mlx.

A collective of MLX waits for its peers without a bound. So each rank starts a guardian, a small process that is connected
to the guardian of rank 0 before `mx.distributed.init` is called, and sends it heartbeats. A rank that ends, by whatever
cause, ends all ranks at once, one that is silent for `ZOO_RANKS_TIMEOUT` seconds (15) then. All ranks have to come within
`ZOO_RANKS_START` seconds (60). Ranks that have called different numbers of collectives, and call no more for
`ZOO_RANKS_STALL` seconds (600), end too.

The address is that of rank 0 in the launcher's settings, or `ZOO_RANKS_ADDRESS` (host:port), for ranks that reach rank 0 only by
another network than MLX's. Open MPI's `mpirun` gives no address. Its ranks on one machine read the port of rank 0 from a file in
the folder of the run. Its ranks on several machines, and ranks of other MPIs, need `ZOO_RANKS_ADDRESS`. Without it there is no
watch: the launcher ends the ranks when one has ended, and nothing ends them when one hangs.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from zoo.errors import in_words
from zoo.launcher import LAUNCHED, LOST, launched_rank
from zoo.rank_watch import guardian
from zoo.rank_watch.guardian import ENDING, GRACE, MESSAGE, TO_MAIN, Peer
from zoo.rank_watch.meeting import SILENCE, STALL, meeting_point, seconds, start_seconds
from zoo.version import __version__

_watch: Watch | None = None


def watch() -> Watch | None:
    """The watch over the ranks of this run. The first call starts it, and waits until all ranks have come.

    It returns None for a single rank, and where the address of rank 0 is not known. RankError for settings that cannot be
    read. Where a rank does not come, or has another version of the zoo or of mlx, all ranks end.
    """
    global _watch
    if _watch is None and (point := meeting_point()) is not None:
        from importlib.metadata import version

        host, port, size = point
        _watch = Watch(
            rank=launched_rank(),
            size=size,
            place=[host, port if isinstance(port, int) else str(port)],
            seconds=[
                start_seconds(),
                seconds("ZOO_RANKS_TIMEOUT", SILENCE),
                seconds("ZOO_RANKS_STALL", STALL),
            ],
            versions=[__version__, version("mlx")],
        )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminated)
        atexit.register(_at_exit, _watch)
        _watch.met.wait()
    return _watch


class Watch:
    """A rank's side of the connection to its guardian. A thread sends heartbeats, and ends this process when the guardian says so.

    `settings` are the arguments of `Guardian`.
    """

    def __init__(self, **settings: Any) -> None:
        import subprocess

        self.collectives = 0  # of all ranks, that this one has called
        self.met, self.done = threading.Event(), threading.Event()
        self.before_end: Callable[[str], None] = lambda line: None  # called with the line once it is printed
        self._interval = min(settings["seconds"][1] / 5, 1.0)
        self._released: queue.SimpleQueue[None] = queue.SimpleQueue()
        ours, theirs = socket.socketpair()
        self._guardian = Peer(ours, TO_MAIN)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, str(theirs.fileno()), json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=sys.__stderr__ or subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in os.environ.items() if name not in LAUNCHED},
            )
        threading.Thread(target=self._run, name="zoo-ranks", daemon=True).start()

    def _run(self) -> None:
        sent = 0.0
        while True:
            if time.monotonic() - sent >= self._interval:
                sent = time.monotonic()
                self._guardian.send("collectives", self.collectives)
            select.select([self._guardian.connection], [], [], self._interval)
            try:
                for name, value in self._guardian.receive():
                    if name == "end":
                        self.before_end(value[0])
                        os._exit(value[1])
                    elif name == "go":
                        self._released.put(None)
                    elif name == "met":
                        self.met.set()
                    else:
                        self.done.set()
            except OSError:
                say("error: the process that watches over this rank has ended; all ranks end")
                os._exit(1)

    def send(self, name: str, value: Any = 1) -> None:
        """Send a message of `guardian.CHECKS` to the guardian."""
        self._guardian.send(name, value)

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """A context in which MLX connects the ranks, within `ZOO_RANKS_START` seconds. It holds Python's lock, so that no thread runs.

        Meanwhile SIGTERM, which `mlx.launch` sends when a rank has ended, is ignored: the guardian says which rank that was.
        """
        main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN) if main else None
        self.send("connecting", -int(-start_seconds() // 1))
        try:
            yield
        finally:
            self.send("connecting", 0)
            if main:
                signal.signal(signal.SIGTERM, before)

    def prove(self, text: str) -> None:
        """Prove to be a rank by a random text of rank 0, which came by MLX."""
        self.send("proof", text)

    def release(self) -> None:
        """On rank 0: let the others go on, which are in `wait`."""
        self.send("go")

    def wait(self) -> None:
        """On the other ranks: wait for rank 0, without a bound but that it lives, and without using the processor."""
        self._released.get()


def _terminated(number: int, frame: object) -> None:
    """SIGTERM. `mlx.launch` sends it to all ranks when one has ended: the guardian may be about to say which."""
    time.sleep(GRACE / 2)
    fail("error: ended by SIGTERM", 143)


def fail(message: str | None, status: int) -> NoReturn:
    """End all ranks with `status`, which is not 0. `message` is printed once; nothing is printed for None.

    An error of all ranks is printed by rank 0. An error of another rank alone begins with the number of that rank.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if _watch is not None:
        _watch.send("error", [_printable(message or ""), status])
        time.sleep(2 * GRACE + ENDING)  # the guardian prints it and ends this process
    elif message is not None and launched_rank() == 0:
        say(message)
    os._exit(status)


def _printable(message: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in message[:MESSAGE])


def wait_for_watch(message: str) -> None:
    """Wait if a message only says that a peer was lost. Meanwhile the guardian says which rank it was, and ends this process."""
    if LOST in message and _watch is not None:
        time.sleep(GRACE)


def end_others(status: int) -> None:
    """On rank 0: end the other ranks at once, without a line."""
    if _watch is not None:
        _watch.send("error", ["", status])


def finish() -> None:
    """The end of a command that has succeeded: ranks wait for each other, so that none ends well if another fails."""
    if _watch is not None:
        _watch.send("done")
        _watch.done.wait(
            start_seconds() if launched_rank() else None
        )  # rank 0's guardian ends what takes too long


def _at_exit(watch: Watch) -> None:
    """Tell the others that this process ends: after its work, or by an exception that Python has printed."""
    if hasattr(sys, "last_value"):
        fail("error: " + in_words(sys.last_value or Exception()), 1)
    watch.send("done", 2)


def say(line: str) -> None:
    """Print a line of the zoo to the error stream that the process was started with, from any thread."""
    if (stream := sys.__stderr__) is not None:
        os.write(stream.fileno(), f"zoo: {line}\n".encode())
