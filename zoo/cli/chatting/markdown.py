"""Markdown coloured as it comes. Every character stays, in its place: styles are put around them, marks included."""

from __future__ import annotations

from zoo.cli.terminal import visible

RESET = "\x1b[0m"
BOLD, DIM, CODE = "1", "2", "36"  # parameters of the escape sequence that selects a style
RUNS = "`*#"  # what marks code, bold text and headings, alone or several in a row
FENCE = 3  # backticks at the start of a line


class Painter:
    """Puts styles around text that comes in pieces: headings, bold text, code, and code between fences.

    A piece ends without a style, so that what is written by others meanwhile has none. A run of marks is held back until
    the character after it is known.
    """

    def __init__(self) -> None:
        self._run = ""  # of one mark, held back
        self._line = ""  # what stands before it on the line
        self._fenced = False
        self._info = False  # the rest of a fence's own line
        self._ticks = 0  # of the run that opened code within a line
        self._bold = self._heading = False
        self._out: list[str] = []
        self._style = ""

    def paint(self, text: str) -> str:
        """More text, with styles."""
        for character in text:
            if character in RUNS and (not self._run or self._run[0] == character):
                self._run += character
                continue
            self._end_run(character)
            if character in RUNS:
                self._run = character
            else:
                self._put(character)
        return self._taken()

    def finish(self) -> str:
        """What was held back."""
        self._end_run("\n")
        return self._taken()

    def _end_run(self, following: str) -> None:
        """Write the run that ends here, and take on or leave the style that it marks."""
        run, self._run = self._run, ""
        if not run:
            return
        mark, at_start = run[0], not self._line.strip()
        if mark == "`" and at_start and len(run) >= FENCE and not self._ticks:
            self._fenced = not self._fenced
            self._info = True
            self._put(run)
        elif self._fenced or (mark == "#" and not (at_start and following in " \n")):
            self._put(run)
        elif mark == "#":
            self._heading = True
            self._put(run)
        elif mark == "`":
            opened, self._ticks = self._ticks, self._ticks or len(run)
            self._put(run)
            if opened == len(run):
                self._ticks = 0
        elif len(run) > 1 and not self._ticks and self._flanks(following):
            before, self._bold = self._bold, True
            self._put(run)
            self._bold = not before
        else:
            self._put(run)

    def _flanks(self, following: str) -> bool:
        """Whether asterisks here can open bold text, or close it: no white space on its side of them."""
        return not self._line[-1:].isspace() and self._line != "" if self._bold else not following.isspace()

    def _put(self, text: str) -> None:
        """Write text in the style of this place."""
        if text == "\n":
            self._info = self._heading = self._bold = False
            self._ticks, self._line = 0, ""
        else:
            self._line += text
        if self._info:
            style = DIM
        elif self._fenced or self._ticks:
            style = CODE
        else:
            style = BOLD if self._heading or self._bold else ""
        if style != self._style:
            self._out.append(f"{RESET if self._style else ''}{styled(style)}")
            self._style = style
        self._out.append(visible(text))

    def _taken(self) -> str:
        if self._style:
            self._out.append(RESET)
            self._style = ""
        taken, self._out = "".join(self._out), []
        return taken


def styled(style: str) -> str:
    """The escape sequence that selects a style; "" for none."""
    return f"\x1b[{style}m" if style else ""


def dim(text: str) -> str:
    """The text, dimmed, its control characters made visible."""
    return f"{styled(DIM)}{visible(text)}{RESET}" if text else ""
