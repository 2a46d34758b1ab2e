"""Where generated text appears: as it comes, or, on a terminal, with drafts that are written over."""

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
    """Shows the steps of one generation; use it as a context, which ends with a whole line.

    `text` is what is certain so far. It alone is written to a file or a pipe. On a terminal a draft before any text
    opens a display that is drawn over with each step, and gives way to the text at the end. `quiet` shows nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.text = ""
        self.quiet = quiet
        self._display: Live | None = None

    def show(self, step: Step) -> None:
        """What one `zoo.Step` adds, or how its draft stands."""
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
        """Write what a step adds."""
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
