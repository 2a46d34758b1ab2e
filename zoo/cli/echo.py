"""Hides the keys that a user types while an answer is written, so that they do not appear within it.

They are read afterwards: by the next question of a conversation, or by the shell.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)  # what ends a process without Python's `finally`
LOCAL = 3  # the index of the local modes in a terminal's attributes

_before: tuple[int, list[Any]] | None = None  # the terminal, and its attributes while its keys are hidden


@contextmanager
def hidden_keys() -> Iterator[None]:
    """Hide what is typed on the terminal of this process within the block, if it has one and is in its foreground."""
    if not _hide():
        yield
        return
    handlers: dict[int, Any] = {}
    with suppress(ValueError):  # in another thread no handler can be set
        handlers = {number: signal.signal(number, _end) for number in ENDING}
    try:
        yield
    finally:
        show_keys()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def show_keys() -> None:
    """Show what is typed again, where it was hidden."""
    global _before
    if _before is not None:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(_before[0], termios.TCSANOW, _before[1])
        _before = None


def _hide() -> bool:
    """Turn the echo of the terminal off. False without a terminal, and in the background, which may not change it."""
    global _before
    try:
        terminal = sys.stdin.fileno()
        if _before is not None or not (os.isatty(terminal) and sys.stdout.isatty()):
            return False
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return False
        modes = termios.tcgetattr(terminal)
        hidden = [*modes]
        hidden[LOCAL] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, hidden)
    except (OSError, ValueError, AttributeError, termios.error):  # closed, or no file
        return False
    _before = terminal, modes
    return True


def _end(number: int, frame: FrameType | None) -> None:
    """Show keys again, and end as the signal does by itself."""
    show_keys()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
