"""Ctrl-C: one listener for the process. It also receives signals while a library call blocks Python."""

from __future__ import annotations

import inspect
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from zoo.cli.echo import show_keys
from zoo.machine import launched

REPEAT = 0.1  # seconds until a Ctrl-C that was not answered is sent once more
PATIENCE = 0.5  # seconds from then until a line says that it was heard
WORK_PATIENCE = 0.7  # seconds that work which saves nothing has to end
ANSWERED = b"\0"  # written to the pipe by the handler; no signal has this number


class Listener:
    """The handler of SIGINT, and a thread that watches signals and whether they were handled.

    Python raises KeyboardInterrupt only between its own instructions, and one evaluation of a large model can take
    longer than a user waits. Each signal's number arrives in a pipe at once, even during a library call.
    """

    def __init__(self) -> None:
        self.work: Interrupts | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._handler = self._interrupt  # one object, so that it can be recognised
        self._clear()
        self._resent = 0  # signals sent by this listener that have not come back

    def start(self) -> None:
        """Handle SIGINT from now on."""
        before = signal.signal(signal.SIGINT, self._handler)
        self._before = before, signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, daemon=True).start()

    def resume(self) -> None:
        """Receive signals again, after another library's event loop received them."""
        if self.in_place():
            signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def stop(self) -> None:
        """Restore the former handler of SIGINT and end the thread."""
        handler, descriptor = self._before
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGINT, handler)
        os.close(self._writer)

    def in_place(self) -> bool:
        """Whether this listener handles SIGINT now, perhaps wrapped while a plugin's code runs."""
        return inspect.unwrap(signal.getsignal(signal.SIGINT)) is self._handler  # type: ignore[arg-type]

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        os.write(self._writer, ANSWERED)
        if _imports_mlx(frame):  # nothing is under way yet
            os._exit(130)
        if self.work is None or not self.work.saves:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while True:
            timeout = None if self._deadline is None else max(self._deadline - time.monotonic(), 0)
            if not select.select([self._reader], [], [], timeout)[0]:
                self._overdue()
            elif not (received := os.read(self._reader, 1)):  # stopped
                os.close(self._reader)
                return
            elif received == ANSWERED:
                if self._ending is None:
                    self._clear()
            elif received[0] == signal.SIGINT:
                if self._resent:
                    self._resent -= 1
                elif self.in_place():
                    self._pressed()

    def _clear(self) -> None:
        """Wait for the next Ctrl-C."""
        self._deadline: float | None = None
        self._ending: Interrupts | None = None  # the work that must be over at the deadline
        self._repeated = self._said = False

    def _pressed(self) -> None:
        """Act on one Ctrl-C."""
        work, now = self.work, time.monotonic()
        if work is not None:
            work.count += 1
        if self._said or (work is not None and work.saves and work.count > 1):
            end()
        if work is None:
            self._deadline = self._deadline or now + REPEAT
        elif work.saves:
            work.say("stopping after this step, to save it; Ctrl-C again stops at once, without saving")
        elif self._ending is None:
            self._ending, self._deadline = work, now + WORK_PATIENCE

    def _overdue(self) -> None:
        """Act on a Ctrl-C that was not handled in time."""
        if self._ending is not None:
            if not self._ending.over:
                end()
            self._clear()
        elif not self._repeated:
            # It may have come just before the main thread began to wait for a key, which another one ends.
            self._repeated, self._deadline = True, time.monotonic() + PATIENCE
            self._resent += 1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            self._said, self._deadline = True, None
            _write("stopping after this step; Ctrl-C again ends at once")


_listener: Listener | None = None


def _imports_mlx(frame: FrameType | None) -> bool:
    """Whether the code under way makes the module mlx.core, whose library aborts the process for an exception in it."""
    while frame is not None:
        if frame.f_code.co_name == "exec_module":
            module = frame.f_locals.get("module")
            if getattr(module, "__name__", "") == "mlx.core":
                return True
        frame = frame.f_back
    return False


def listen() -> Listener | None:
    """Start the process's listener. It acknowledges a Ctrl-C that is not handled soon; a second one ends the process.

    Returns None without a listener outside the main thread, where Ctrl-C is ignored (a background job of a shell), and
    where another handler is installed.
    """
    global _listener
    if _listener is not None and _listener.in_place():
        return _listener
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) not in (
        signal.default_int_handler,
        signal.SIG_DFL,
    ):
        return None
    _listener = Listener()
    _listener.start()
    return _listener


def leave() -> None:
    """Restores the default Ctrl-C at the end of the command: it ends the process at once and silently."""
    if _listener is not None and _listener.in_place():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Interrupts:
    """A context manager for long work. Before `wait_for_step`, Ctrl-C ends the work within `WORK_PATIENCE` seconds.

    After it, the first Ctrl-C calls `say` and makes `asked()` true; the second ends the process.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.count = 0
        self.saves = False
        self.over = False
        self._listener: Listener | None = None
        self._outer: Interrupts | None = None
        self._started = False

    def wait_for_step(self) -> None:
        """From now on, let the current step end so that its result is saved."""
        self.saves = True

    def asked(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.count > 0

    def __enter__(self) -> Interrupts:
        before = _listener
        self._listener = listen()
        if self._listener is not None:
            self._started = self._listener is not before
            self._outer, self._listener.work = self._listener.work, self
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        if self._listener is not None:
            self._listener.work = self._outer
            if self._started:
                self._listener.stop()


def end() -> None:
    """End the process at once, and all ranks with it. Show the cursor again."""
    if launched():
        from zoo import rank_watch

        rank_watch.end_others(130)
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\r\n")  # a progress bar has hidden the cursor
    show_keys()
    os._exit(130)


def _write(text: str) -> None:
    os.write(
        sys.stderr.fileno(),
        f"\r\nzoo: {text}\r\n".encode() if sys.stderr.isatty() else f"zoo: {text}\n".encode(),
    )
