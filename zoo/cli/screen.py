"""Prints generated text as it comes, and on a terminal the drafts of diffusion models."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from zoo.cli.terminal import visible, write

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text as RichText

    from zoo.generation.loop.step import Step


class Screen:
    """Prints the steps of one generation: a context manager, which ends with a whole line.

    `text` is the final text so far; a file or a pipe gets nothing else. On a terminal, a draft before any text opens a
    display that each step redraws. The text replaces it at the end. `quiet` prints nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.text = ""
        self.quiet = quiet
        self._display: Live | None = None

    def show(self, step: Step) -> None:
        """Print the text that a `zoo.Step` adds, or its draft."""
        if self.quiet:
            self.text += step.text
            return
        if step.draft is not None and self._display is None and not self.text and sys.stdout.isatty():
            self._open()
        self.text += step.text
        if self._display is None:
            self.put(step)
        else:
            self._display.update(self._drawn(step.draft or ""), refresh=True)

    def put(self, step: Step) -> None:
        """Print the text that a step adds."""
        write(step.text)

    def _open(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._display = Live(console=Console(file=sys.stdout), transient=True, auto_refresh=False)
        self._display.start()

    def _drawn(self, draft: str) -> RichText:
        from rich.text import Text

        return Text(visible(self.text)).append(visible(draft), style="dim")

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()
            write(self.text)
        failed_at_once = kind is not None and not self.text
        if not self.quiet and not failed_at_once and not self.text.endswith("\n"):
            write("\n")
