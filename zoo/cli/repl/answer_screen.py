"""Prints an answer: on a terminal with coloured Markdown and dimmed thinking, elsewhere the text alone."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from zoo.cli.repl.markdown import Painter, dim
from zoo.cli.screen import Screen
from zoo.cli.terminal import Terminal, coloured, write, write_styled

if TYPE_CHECKING:
    from zoo.generation.loop.step import Step


class AnswerScreen(Screen):
    """Prints the steps of one answer. Thinking is printed only on a terminal, above the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._painter = Painter() if coloured() else None
        self._thought = ""  # the thinking that was shown since the last text

    def put(self, step: Step) -> None:
        """Print what a step adds, its thinking first."""
        if step.thinking and isinstance(sys.stdout, Terminal):
            write_styled(dim(step.thinking)) if self._painter else write(step.thinking)
            self._thought += step.thinking
        if step.text:
            self._end_thinking()
            write_styled(self._painter.paint(step.text)) if self._painter else write(step.text)

    def _end_thinking(self) -> None:
        if self._thought:
            write("\n" if self._thought.endswith("\n") else "\n\n")
            self._thought = ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._painter is not None:
            write_styled(self._painter.finish())
        if self._thought and not self.text:
            write("\n" * (not self._thought.endswith("\n")))
            return
        super().__exit__(kind, error, trace)
