"""Watches over the ranks of a run: where one ends, hangs or differs, all end, with one line that names it. No mlx.

A collective of MLX waits for its peers without a bound. So each rank has a connection to rank 0 beside MLX's, made before
`mx.distributed.init`, and a thread that sends heartbeats on it and expects them. A closed connection ends all ranks at once,
silence after `ZOO_RANKS_TIMEOUT` seconds (15). All ranks have to come within `ZOO_RANKS_START` seconds (60). Ranks that have called
different numbers of collectives, and call no more for `ZOO_RANKS_STALL` seconds (600), end too.

The address is that of rank 0 in the launcher's settings, or `ZOO_RANKS_ADDRESS` (host:port), for ranks that reach rank 0 only by
another network than MLX's. Open MPI's `mpirun` gives no address. Its ranks on one machine read the port of rank 0 from a file in
the folder of the run. Its ranks on several machines, and ranks of other MPIs, need `ZOO_RANKS_ADDRESS`. Without it there is no
watch: the launcher ends the ranks when one has ended, and nothing ends them when one hangs.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import NoReturn

from zoo.errors import RankError, in_words
from zoo.rank_watch.launcher import SILENCE, STALL, launched_rank, meeting_point, seconds, start_seconds
from zoo.rank_watch.peers import ABSENT, accept, connect
from zoo.rank_watch.watching import GRACE, Watch, process, say
from zoo.version import __version__

MESSAGE = 4000  # characters of an error that goes to rank 0
LOST = "connection to a peer was lost"  # what MLX's ring raises on the neighbours of a rank that has ended


@cache
def watch() -> Watch | None:
    """The watch over the ranks of this run. The first call connects them.

    It returns None for a single rank, and where the address of rank 0 is not known.

    RankError when a rank does not come, or has another version of the zoo or of mlx.
    """
    point = meeting_point()
    if point is None:
        return None
    host, port, size = point
    rank, silence = launched_rank(), seconds("ZOO_RANKS_TIMEOUT", SILENCE)
    stall = seconds("ZOO_RANKS_STALL", STALL)
    deadline = time.monotonic() + start_seconds()
    facts = {"zoo": __version__, "mlx": version("mlx"), "pid": os.getpid(), "process": process()}
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    if rank == 0:
        found = Watch(0, accept(host, port, size, deadline, facts), silence, stall)
    else:
        found = Watch(rank, [connect(host, port, rank, deadline, facts)], silence, stall)
        with suppress(queue.Empty):
            found.peers[0].mail.get(timeout=deadline + GRACE - time.monotonic())
        if not found.peers[0].facts:
            raise RankError("rank 0 did not let this rank in")
    atexit.register(_at_exit, found)
    return found


def check_alike(what: str, value: str) -> None:
    """Compare a value, such as a digest of the checkpoint, with that of rank 0. All ranks call it.

    Where a rank has another value, rank 0 raises RankError with both values, and all ranks end.
    """
    if (found := watch()) is not None:
        found.check_alike(what, value)


def _terminated(number: int, frame: object) -> None:
    """SIGTERM. `mlx.launch` sends it to all ranks when one has ended: the watch may be about to say which."""
    if _met() is None:
        raise SystemExit(143)
    time.sleep(GRACE / 2)
    fail("error: ended by SIGTERM", 143)


def _met() -> Watch | None:
    """The watch, if the ranks have met."""
    return watch() if watch.cache_info().currsize else None


def fail(message: str | None, status: int) -> NoReturn:
    """End all ranks with `status`, which is not 0. `message` is printed once; nothing is printed for None.

    An error of all ranks is printed by rank 0. An error of another rank alone begins with the number of that rank.
    """
    found = _met()
    if found is None:
        speaker = 1 if message and ABSENT in message else 0  # rank 1 speaks where rank 0 is not there
        if message is not None and launched_rank() == speaker:
            say(message)
        _exit_now(status)
    if message is not None:
        wait_for_watch(message)
    if found.rank:
        found.peers[0].send(error=(message or f"ended with status {status}")[:MESSAGE], status=status)
        time.sleep(2 * GRACE)  # rank 0 prints it and ends this process
    if not found.claim():
        time.sleep(GRACE)  # the watch prints its line and ends this process
    elif message is not None:
        say(f"rank {found.rank}: {message}" if found.rank else message)
    found.end_others(status)
    _exit_now(status)


def wait_for_watch(message: str) -> None:
    """Wait if a message only says that a peer was lost. Meanwhile the watch prints which rank it was, and ends this process."""
    if LOST in message and _met() is not None:
        time.sleep(GRACE)


def end_others(status: int) -> None:
    """On rank 0: end the other ranks at once, without a line."""
    if (found := _met()) is not None and found.claim():
        found.end_others(status)


def _exit_now(status: int) -> NoReturn:
    """End without waiting for the threads of MLX, which may be in a collective."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def finish() -> None:
    """The end of a command that has succeeded: ranks wait for each other, so that none ends well if another fails."""
    if (found := _met()) is not None:
        found.finish(start_seconds())


def _at_exit(found: Watch) -> None:
    """Tell the others that this process ends: after its work, or by an exception that Python has printed."""
    if hasattr(sys, "last_value"):
        fail("error: " + in_words(sys.last_value or Exception()), 1)
    if not found.finished:
        for peer in found.peers:
            peer.send(done=True)
