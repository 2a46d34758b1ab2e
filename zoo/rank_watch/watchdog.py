"""Ends a rank that is silent for too long: a process beside it. It is a script, and imports nothing of the zoo.

A rank cannot do this itself: MLX holds Python's lock while it connects the ranks, and a stopped process runs no thread. The rank
writes lines of JSON to the standard input: within how many seconds the next line has to come, and the two lines to print
if it does not, and if the rank ends before ("" prints nothing).
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

STEP = 0.5  # seconds


def main() -> None:
    """Wait until the rank ends or is silent for too long; then print the line, and kill the rank if it lives."""
    parent, silent, before = os.getppid(), 0.0, time.monotonic()
    seconds, if_silent, if_ended = 60.0, "", ""
    while silent < seconds:
        readable = select.select([0], [], [], STEP)[0]
        now = time.monotonic()
        # The machine may have suspended this process and the rank. Such a gap counts only in part as silence of the rank.
        silent, before = silent + min(now - before, seconds / 3), now
        if readable:
            received = os.read(0, 2**16)
            if not received:
                say(if_ended)
                return
            silent, (seconds, if_silent, if_ended) = 0.0, json.loads(received.splitlines()[-1])
    say(if_silent)
    if os.getppid() == parent:
        os.kill(parent, signal.SIGKILL)


def say(line: str) -> None:
    """Print a line of the zoo to the error stream."""
    if line:
        os.write(2, f"zoo: {line}\n".encode())


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    main()
