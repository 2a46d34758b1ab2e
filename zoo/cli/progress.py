"""Progress bars on the error stream, if it is a terminal. A bar appears after a second."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import rich.progress

AFTER = 1.0  # seconds until a bar is shown

_shown: list[rich.progress.Progress] = []


def say(line: str) -> None:
    """Print a line to the error stream, above the bar where one is shown."""
    bar = next(reversed(_shown), None)
    if bar is None:
        click.echo(line, err=True, color=True)
        return
    from zoo.cli.terminal import visible

    bar.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def show(bar: rich.progress.Progress) -> None:
    """Show a bar of rich's on the error stream."""
    bar.start()
    _shown.append(bar)


def hide(bar: rich.progress.Progress) -> None:
    """Stop a bar, if it is shown: remove it if it is transient, else leave it as it is."""
    if bar in _shown:
        _shown.remove(bar)
        bar.stop()


class Progress:
    """A progress bar for one piece of work: a context manager, called with the amount done and the total.

    The bar appears `AFTER` seconds after the context begins or, when `waits`, after the first call, so that another bar
    may be shown until then. A total of 0 means unknown. The bar is removed at the end.
    """

    def __init__(self, what: str, waits: bool = False) -> None:
        self.what = what
        self._waits = waits
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: rich.progress.Progress | None = None
        self._state: tuple[int, int | None] = (0, None)
        self._over = not sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            self._state = done, total or None
            self._begin()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, total=total or None)

    def __enter__(self) -> Progress:
        if not self._waits:
            with self._lock:
                self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar; later calls show nothing."""
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._bar is not None:
                hide(self._bar)
                self._bar = None

    def _begin(self) -> None:
        if self._over or self._timer is not None:
            return
        self._timer = threading.Timer(AFTER, self._open)
        self._timer.daemon = True
        self._timer.start()

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        from zoo.cli.terminal import visible

        with self._lock:
            if self._over:
                return
            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
            )
            done, total = self._state
            self._bar.add_task(visible(self.what), completed=done, total=total)
            show(self._bar)
