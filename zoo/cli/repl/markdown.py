"""Markdown in colours as it streams. Every character stays in its place, marks included; styles are put around them."""

from __future__ import annotations

import re

from zoo.cli.terminal import visible

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
            self._new_line()
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

    def _new_line(self) -> None:
        self._line = ""
        self._fence_line = self._heading = self._bold = False
        self._ticks = 0

    def _style(self) -> str:
        if self._fence_line:
            return DIM
        if self._fenced or self._ticks:
            return CODE
        return BOLD if self._heading or self._bold else ""


def dim(text: str) -> str:
    """The text, dimmed, its control characters made visible."""
    return f"\x1b[{DIM}m{visible(text)}{RESET}" if text else ""
