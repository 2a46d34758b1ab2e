"""Answers with tags: thinking between two of them, calls between two or after one, the rest is text."""

from __future__ import annotations

from collections.abc import Callable

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing.calls import Body, Tools
from zoo.generation.chat.parsing.parser import MarkedText, Parsed, Trimmed
from zoo.generation.chat.tools import ToolCall


@frozen()
class CallTags(Frozen):
    """How calls are marked: by `opening` and `closing`; without `closing` the next opening or the answer's end closes.

    `body` reads what stands between. An answer that `unmarked` says may be calls without a mark is held back to its
    end, and read by `body`, too.
    """

    opening: str
    closing: str | None
    body: Body
    unmarked: Callable[[str], bool] | None = None


class TaggedParser:
    """Parser of answers with tags. Thinking stands at the start; later its tags are text like any other."""

    def __init__(
        self,
        thinking: tuple[str, str] | None,
        calls: CallTags | None,
        tools: Tools = (),
        *,
        begun: bool = False,
    ) -> None:
        """`begun`: the prompt has opened the thinking."""
        self._marked = MarkedText()
        self._tags, self._calls, self._tools = thinking, calls, tools
        self._text, self._thoughts = Trimmed(), Trimmed(after_mark=True)
        self._state = self._in_thinking if begun else self._at_start
        self._call = ""  # the one under way, its mark included
        self._new: tuple[list[str], list[str], list[ToolCall]]

    def add(self, text: str) -> Parsed:
        """What is certain after more text."""
        self._marked.pending += text
        return self._advance(last=False)

    def finish(self) -> Parsed:
        """What was held back."""
        rest = self._advance(last=True)
        return Parsed(rest.text + self._text.finish(), rest.thinking + self._thoughts.finish(), rest.calls)

    def _advance(self, last: bool) -> Parsed:
        self._new = [], [], []
        while self._state(last):
            pass
        texts, thoughts, calls = self._new
        return Parsed("".join(texts), "".join(thoughts), tuple(calls))

    # The states. Each takes what it can of what is pending, and says whether the next state has more to do.

    def _at_start(self, last: bool) -> bool:
        """Nothing but white space so far."""
        body = self._marked.pending.lstrip()
        space = self._marked.pending[: len(self._marked.pending) - len(body)]
        self._new[0].append(self._text.push(space))
        self._marked.pending = body
        opening = self._tags[0] if self._tags else None
        if opening and body.startswith(opening):
            self._marked.pending = body[len(opening) :]
            self._text.trim()
            self._state = self._in_thinking
            return True
        unmarked = self._calls is not None and self._calls.unmarked is not None and self._calls.unmarked(body)
        if not last and (unmarked or (opening and opening.startswith(body))):
            return False
        if unmarked and self._called(body):
            self._marked.pending = ""
        self._state = self._in_text
        return True

    def _in_text(self, last: bool) -> bool:
        before, mark = self._marked.take((self._calls.opening,) if self._calls else (), last)
        self._new[0].append(self._text.push(before))
        if mark is None:
            return False
        self._call, self._state = mark, self._in_call
        return True

    def _in_thinking(self, last: bool) -> bool:
        before, mark = self._marked.take((self._tags[1],) if self._tags else (), last)
        self._new[1].append(self._thoughts.push(before))
        if mark is None:
            return False
        self._thoughts.trim()
        self._text.trim()
        self._state = self._at_start
        return True

    def _in_call(self, last: bool) -> bool:
        assert self._calls is not None
        opening, closing = self._calls.opening, self._calls.closing
        before, mark = self._marked.take((closing or opening,), last)
        self._call += before
        if mark is None and not last:
            return False
        if not self._called(self._call[len(opening) :]):
            self._new[0].append(self._text.push(self._call + (mark if mark and closing else "")))
        if mark and closing is None:
            self._call = mark
        else:
            self._state = self._in_text
        return True

    def _called(self, body: str) -> bool:
        """Note the calls of a body; False where it is malformed."""
        assert self._calls is not None
        made = self._calls.body(body, self._tools)
        if made is None:
            return False
        self._new[2].extend(made)
        self._text.trim()
        return True
