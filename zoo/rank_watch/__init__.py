"""Watches over the ranks of a run: where one ends, hangs or cannot start, all end, with one line that names it. No mlx.

A collective of MLX waits for its peers without a bound. So each rank is connected to rank 0 before `mx.distributed.init` is called,
and a thread sends heartbeats. A rank that ends, by whatever cause, ends all ranks at once, one that is silent for
`ZOO_RANKS_TIMEOUT` seconds (15) then. All ranks have to come within `ZOO_RANKS_START` seconds (60). Rank 0 prints the line, or
rank 1 where rank 0 is lost. A process beside each rank kills it if it is stopped, or if MLX does not connect it in time (`watchdog.py`).

The address is that of rank 0 in the launcher's settings, or `ZOO_RANKS_ADDRESS` (host:port), for ranks that reach rank 0 only by
another network than MLX's. Open MPI's `mpirun` gives no address. Its ranks on one machine read the port of rank 0 from a file in
the folder of the run. Its ranks on several machines, and ranks of other MPIs, need `ZOO_RANKS_ADDRESS`. Without it there is no
watch: the launcher ends the ranks when one has ended, and nothing ends them when one hangs.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

from zoo.errors import in_words
from zoo.machine import LOST, launched_rank
from zoo.rank_watch.meeting import SILENCE, meeting_point, seconds, start_seconds
from zoo.rank_watch.peer import MESSAGE
from zoo.rank_watch.watch import GRACE, Watch, say

_watch: Watch | None = None


def watch() -> Watch | None:
    """The watch over the ranks of this run. The first call starts it, and waits until all ranks have come.

    It returns None for a single rank, and where the address of rank 0 is not known. RankError for settings that cannot be
    read. Where a rank does not come, all ranks end.
    """
    global _watch
    if _watch is None and (point := meeting_point()) is not None:
        silence = seconds("ZOO_RANKS_TIMEOUT", SILENCE)
        _watch = Watch(launched_rank(), *point, start=start_seconds(), silence=silence)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminated)
        atexit.register(_at_exit, _watch)
        _watch.met.wait()
    return _watch


def _terminated(number: int, frame: object) -> None:
    """SIGTERM. `mlx.launch` sends it to all ranks when one has ended: the watch may be about to say which."""
    if _watch is not None and _watch.ending.locked():
        return  # this very thread ends the process, and goes on
    time.sleep(GRACE / 2)
    fail("error: ended by SIGTERM", 143)


def fail(message: str | None, status: int) -> NoReturn:
    """End all ranks with `status`, which is not 0. `message` is printed once; nothing is printed for None.

    An error of all ranks is printed by rank 0. An error of another rank alone begins with the number of that rank.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    line = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in message or "")
    if _watch is not None:
        wait_for_watch(line)
        _watch.fail(line[: MESSAGE - 40], status)
    if line and launched_rank() == 0:
        say(line)
    os._exit(status)


def wait_for_watch(message: str) -> None:
    """Wait if a message only says that a peer was lost. Meanwhile the watch says which rank it was, and ends this process."""
    if LOST in message and _watch is not None:
        time.sleep(GRACE)


def end_others(status: int) -> None:
    """On rank 0: end the other ranks at once, without a line."""
    if _watch is not None:
        _watch.tell("end", status)


def finish() -> None:
    """The end of a command that has succeeded: ranks wait for each other, so that none ends well if another fails."""
    if _watch is not None:
        _watch.finish()
        _watch.done.wait(
            None if launched_rank() == 0 else start_seconds()
        )  # rank 0's watch ends what takes too long


def _at_exit(watch: Watch) -> None:
    """Tell the others that this process ends: after its work, or by an exception that Python has printed."""
    if hasattr(sys, "last_value"):
        fail("error: " + in_words(sys.last_value or Exception()), 1)
    watch.tell("done")
