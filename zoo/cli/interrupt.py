"""Ctrl-C during long work: answered at once, from a thread of its own, whatever the main thread waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from zoo.cli.signals import end

PATIENCE = 0.7  # seconds that code outside Python's reach has to come back


class Interrupts:
    """Use it as a context. Before `wait_for_step`, Ctrl-C ends the work, within `PATIENCE` even inside a library's call.

    After it, the first one is answered by `say` and noted, so that `asked()` is true; the second ends the process.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._count = 0
        self._graceful = False
        self._over = threading.Event()
        self._undo = contextlib.ExitStack()

    def wait_for_step(self) -> None:
        """From now on let a step end, and what it made be saved."""
        self._graceful = True

    def asked(self) -> bool:
        """Whether somebody wants it to stop."""
        return self._count > 0

    def __enter__(self) -> Interrupts:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a shell's background job
        if ignored or threading.current_thread() is not threading.main_thread():
            return self
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.signal(signal.SIGINT, self._handle), signal.set_wakeup_fd(writing)

        def restore() -> None:
            signal.set_wakeup_fd(before[1])
            signal.signal(signal.SIGINT, before[0])
            self._over.set()
            os.close(writing)

        self._undo.callback(restore)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _handle(self, number: int, frame: Any) -> None:
        if not self._graceful:
            raise KeyboardInterrupt

    def _watch(self, reading: int) -> None:
        """Read the signals that the C level notes as they come; the handler waits for the main thread."""
        while number := os.read(reading, 1):
            if number[0] != signal.SIGINT:
                continue
            self._count += 1
            if not self._graceful:
                if not self._over.wait(PATIENCE):
                    end()
            elif self._count == 1:
                self._say("stopping after this step, to save it; Ctrl-C again stops at once, without saving")
            else:
                end()
        os.close(reading)
