"""What parsers of answers share: the pieces that they give, marks in a stream, and white space around these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.tools import ToolCall


@frozen()
class Parsed(Frozen):
    """What more of an answer has made certain."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()


class Parser(Protocol):
    """Takes one answer apart. However its text is cut into pieces, all that they give together is the same."""

    def add(self, text: str) -> Parsed:
        """What is certain after more text."""
        ...

    def finish(self) -> Parsed:
        """What was held back, at the end of the answer. Half a call is text."""
        ...


class MarkedText:
    """Text in which marks are looked for: its end is held back while it may be the beginning of one."""

    def __init__(self) -> None:
        self.pending = ""

    def take(self, marks: Iterable[str], last: bool = False) -> tuple[str, str | None]:
        """The text before the first of the marks, and this mark; both are taken out.

        Without a mark, the text that cannot belong to one, or all of it at the `last`, and None.
        """
        marks = tuple(marks)
        found = [(start, -len(mark), mark) for mark in marks if (start := self.pending.find(mark)) >= 0]
        if found:
            start, _, mark = min(found)
            before, self.pending = self.pending[:start], self.pending[start + len(mark) :]
            return before, mark
        kept = 0 if last else max((self._begun(mark) for mark in marks), default=0)
        cut = len(self.pending) - kept
        before, self.pending = self.pending[:cut], self.pending[cut:]
        return before, None

    def _begun(self, mark: str) -> int:
        """How many characters at the end are the beginning of a mark."""
        longest = min(len(mark) - 1, len(self.pending))
        return next((n for n in range(longest, 0, -1) if self.pending.endswith(mark[:n])), 0)


class Trimmed:
    """Text without the white space next to marks, which is layout; all other white space stays.

    `trim` says that a mark is here. White space is held back until it is known what follows.
    """

    def __init__(self, after_mark: bool = False) -> None:
        self.held = ""
        self.after_mark = after_mark

    def push(self, text: str) -> str:
        """The text that is certain."""
        text = self.held + text
        if self.after_mark:
            text = text.lstrip()
        kept = text.rstrip()
        self.held = text[len(kept) :]
        if kept:
            self.after_mark = False
        return kept

    def trim(self) -> None:
        """Leave out the white space before this place and after it."""
        self.held, self.after_mark = "", True

    def finish(self) -> str:
        """The white space at the end, where no mark follows."""
        held, self.held = self.held, ""
        return held
