"""Base class of parsers of chat answers: held-back text, states, and what an answer was parsed into."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zoo.frozen import Frozen, frozen
from zoo.generation.loop.step import ToolCall
from zoo.generation.loop.stop import partial_match


@frozen()
class Parsed(Frozen):
    """A part of an answer, or all of it: text, thinking and tool calls. Parts can be added."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()

    def __add__(self, other: Parsed) -> Parsed:
        return Parsed(self.text + other.text, self.thinking + other.thinking, self.calls + other.calls)


class Parser:
    """Parses one answer as it is generated. The parts add up to the same, however the text is split.

    A parser is a state machine. `state` is a method that takes what it can of the `pending` text and returns whether
    the next state can go on at once. Its argument `last` says that no more text will come.
    """

    def __init__(self, state: Callable[[bool], bool]) -> None:
        self.state = state
        self.pending = ""
        self.parsed = Parsed()  # since the last call of `add`

    def add(self, text: str) -> Parsed:
        """What is certain after more text."""
        self.pending += text
        return self._advance(last=False)

    def finish(self) -> Parsed:
        """What was held back, at the end of the answer. Half a call is text."""
        return self._advance(last=True)

    def _advance(self, last: bool) -> Parsed:
        self.parsed = Parsed()
        while self.state(last):
            pass
        return self.parsed

    def take(self, tags: Iterable[str], last: bool) -> tuple[str, str | None]:
        """Take the text before the first of the tags, and this tag, out of what is pending.

        Without a tag: the text that cannot be the beginning of one, or all of it if `last`, and None.
        """
        tags = tuple(tags)
        found = [(start, -len(tag), tag) for tag in tags if (start := self.pending.find(tag)) >= 0]
        if found:
            start, _, tag = min(found)
            before, self.pending = self.pending[:start], self.pending[start + len(tag) :]
            return before, tag
        end = len(self.pending) - (0 if last else partial_match(self.pending, tags))
        before, self.pending = self.pending[:end], self.pending[end:]
        return before, None


class TagTrimmer:
    """Removes the white space next to tags, which is layout, and holds back what may stand before one."""

    def __init__(self, after_tag: bool = False) -> None:
        self.held = ""
        self.after_tag = after_tag

    def push(self, text: str) -> str:
        """The text that is certain."""
        text = self.held + text
        if self.after_tag:
            text = text.lstrip()
        kept = text.rstrip()
        self.held = text[len(kept) :]
        if kept:
            self.after_tag = False
        return kept

    def trim(self) -> None:
        """A tag stands here: remove the white space before it and after it."""
        self.held, self.after_tag = "", True

    def finish(self) -> str:
        """The white space at the end, which no tag follows."""
        held, self.held = self.held, ""
        return held
