"""Prints generated text as it comes: the text alone or, on a terminal, with the drafts of diffusion models and dimmed
thinking, and an answer with coloured Markdown, of which every character stays in its place, marks included.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Self

from zoo.cli.echo import hidden_keys
from zoo.cli.terminal import Terminal, coloured, visible, write, write_styled

if TYPE_CHECKING:
    from rich.live import Live

    from zoo.generation.loop.step import Step

RESET = "\x1b[0m"
BOLD, DIM, CODE = "1", "2", "36"  # parameters of the escape sequence that selects a style
STRONGER = ("", BOLD, CODE, DIM)  # of two styles at a mark, the later of these is shown
RUNS = re.compile(r"`+|\*+|#+|\n|[^`*#\n]+")
FENCE = 3  # backticks at the start of a line


class Painter:
    """Puts styles around text that comes in pieces: headings, bold text, code, and code between fences.

    A piece ends without a style, so that what others write meanwhile has none. A run of marks at the end of a piece is
    held back until the character after it is known.
    """

    def __init__(self) -> None:
        self._held = ""
        self._line = ""  # what stands before it on its line
        self._fenced = self._fence_line = self._heading = self._bold = False
        self._ticks = 0  # backticks that opened the code within a line

    def paint(self, text: str) -> str:
        """More text, with styles."""
        runs = RUNS.findall(self._held + text)
        self._held = runs.pop() if runs and runs[-1][0] in "`*#" else ""
        return self._painted(runs, self._held)

    def finish(self) -> str:
        """What was held back."""
        runs, self._held = RUNS.findall(self._held), ""
        return self._painted(runs, "\n")

    def _painted(self, runs: list[str], following: str) -> str:
        return "".join(
            self._run(run, after[:1]) for run, after in zip(runs, [*runs, following][1:], strict=True)
        )

    def _run(self, run: str, following: str) -> str:
        """A run in its style. Marks have the style that they begin or end."""
        if run == "\n":
            self._line, self._ticks = "", 0
            self._fence_line = self._heading = self._bold = False
            return run
        before = self._style()
        self._mark(run, following)
        self._line += run
        style = max(before, self._style(), key=STRONGER.index)
        return f"\x1b[{style}m{visible(run)}{RESET}" if style else visible(run)

    def _mark(self, run: str, following: str) -> None:
        """Begin or end the style of a run of marks."""
        mark, at_start = run[0], not self._line.strip()
        if mark == "`" and at_start and len(run) >= FENCE and not self._ticks:
            self._fenced, self._fence_line = not self._fenced, True
        elif self._fenced:
            return
        elif mark == "#" and at_start and following in " \n":
            self._heading = True
        elif mark == "`" and self._ticks in (0, len(run)):
            self._ticks = 0 if self._ticks else len(run)
        elif mark == "*" and len(run) > 1 and not self._ticks:
            # No white space may stand on the inner side of asterisks.
            inner = self._line[-1:] if self._bold else following
            if inner and not inner.isspace():
                self._bold = not self._bold

    def _style(self) -> str:
        if self._fence_line:
            return DIM
        if self._fenced or self._ticks:
            return CODE
        return BOLD if self._heading or self._bold else ""


def dim(text: str) -> str:
    """The text, dimmed, its control characters made visible."""
    return f"\x1b[{DIM}m{visible(text)}{RESET}" if text else ""


class Screen:
    """Prints the steps of one generation: a context manager, which ends with a whole line.

    `text` is the final text so far; a file or a pipe gets nothing else. A terminal shows thinking above the text. On a
    terminal, typed keys are hidden, and a draft before any text opens a display that each step redraws. The text replaces it at the end. `quiet`
    prints nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.text = ""
        self.quiet = quiet
        self._thought = ""  # the thinking that was shown since the last text
        self._display: Live | None = None
        self._keys = hidden_keys()

    def show(self, step: Step) -> None:
        """Print the text that a `zoo.Step` adds, or its draft."""
        if self.quiet:
            self.text += step.text
            return
        if step.draft is not None and self._display is None and not self.text and sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            self._display = Live(console=Console(file=sys.stdout), transient=True, auto_refresh=False)
            self._display.start()
        self.text += step.text
        if self._display is None:
            self.put(step)
        else:
            from rich.text import Text

            drawn = Text(visible(self.text)).append(visible(step.draft or ""), style="dim")
            self._display.update(drawn, refresh=True)

    def put(self, step: Step) -> None:
        """Print what a step adds, its thinking first, which only a terminal shows."""
        if step.thinking and isinstance(sys.stdout, Terminal):
            write_styled(dim(step.thinking)) if coloured() else write(step.thinking)
            self._thought += step.thinking
        if step.text:
            if self._thought:
                write("\n" if self._thought.endswith("\n") else "\n\n")
                self._thought = ""
            self.put_text(step.text)

    def put_text(self, text: str) -> None:
        """Print more of the text."""
        write(text)

    def __enter__(self) -> Self:
        self._keys.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._keys.__exit__(None, None, None)
        if self._display is not None:
            self._display.stop()
            write(self.text)
        if self._thought and not self.text:
            write("\n" * (not self._thought.endswith("\n")))
            return
        failed_at_once = kind is not None and not self.text
        if not self.quiet and not failed_at_once and not self.text.endswith("\n"):
            write("\n")


class AnswerScreen(Screen):
    """Prints the steps of one answer, on a terminal with coloured Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self._painter = Painter() if coloured() else None

    def put_text(self, text: str) -> None:
        """Print more of the text, with styles."""
        write_styled(self._painter.paint(text)) if self._painter else write(text)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._painter is not None:
            write_styled(self._painter.finish())
        super().__exit__(kind, *error)
