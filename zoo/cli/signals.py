"""Ctrl-C while the process is inside a library that cannot be interrupted: heard, and obeyed at the second one."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

REPEAT = 0.1  # seconds until Ctrl-C that was not answered is sent once more
PATIENCE = 0.5  # seconds until it is said to have been heard
ANSWERED = b"\0"  # no signal has this number


def listen() -> None:
    """From now on, say so when Ctrl-C has not ended what is under way at once; a second one then ends the process.

    Python raises KeyboardInterrupt between two of its own steps only, and one evaluation of a large model on a slow
    device takes longer than a person waits. Does nothing where Ctrl-C is ignored or handled by somebody else.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def interrupt(number: int, frame: FrameType | None) -> None:
        os.write(writer, ANSWERED)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    # The number of each signal arrives in the pipe at once, even while the main thread is inside a library.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, interrupt), daemon=True).start()


def _watch(reader: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """Follow the signals and the answers to them, as long as this handler is in place."""
    since: float | None = None  # when the signal came that is not answered yet
    repeated = said = False
    own = 0  # signals sent from here that have not come back
    while True:
        deadline = None if since is None or said else since + (PATIENCE if repeated else REPEAT)
        room = None if deadline is None else max(deadline - time.monotonic(), 0)
        if not select.select([reader], [], [], room)[0]:
            if repeated:
                said = True
                _say("stopping after this step; Ctrl-C again ends at once")
            else:
                # It may have come just before the main thread began to wait for a key, which another one ends.
                repeated = True
                own += 1
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            continue
        received = os.read(reader, 1)
        if received == ANSWERED:
            since, repeated, said = None, False, False
        elif received[0] == signal.SIGINT and own:
            own -= 1
        elif received[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is handler:
            if said:
                end()
            since = since or time.monotonic()


def end() -> None:
    """End the process, whatever it is in the middle of, the cursor shown again."""
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\r\n")  # a progress bar has hidden the cursor
    os._exit(130)


def _say(text: str) -> None:
    os.write(2, f"\r\nzoo: {text}\r\n".encode() if sys.stderr.isatty() else f"zoo: {text}\n".encode())
