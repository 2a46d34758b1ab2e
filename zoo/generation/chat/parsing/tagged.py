"""Answers with tags: thinking between two of them, calls between two or after one, the rest is text."""

from __future__ import annotations

from collections.abc import Callable

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing.calls import ParseCalls, Tools
from zoo.generation.chat.parsing.parser import Parsed, Parser, TagTrimmer


@frozen()
class CallFormat(Frozen):
    """How models write calls. A chat template with all the `template_markers` belongs to such a model.

    `opening` and `closing` stand around a call; without `closing`, the next opening or the end of the answer closes it.
    `parse` reads what stands between; it is None for harmony, which has messages in place of tags. An answer for which
    `may_be_untagged` is true is held back to its end and read by `parse`, too. `tokens` are the other special tokens that
    a parser has to see.
    """

    name: str
    template_markers: tuple[str, ...]
    opening: str = ""
    closing: str | None = None
    parse: ParseCalls | None = None
    may_be_untagged: Callable[[str], bool] | None = None
    tokens: tuple[str, ...] = ()


class TaggedParser(Parser):
    """Parser of answers with tags. Thinking stands at the start; later its tags are text like any other."""

    def __init__(
        self,
        thinking: tuple[str, str] | None,
        format: CallFormat | None,
        tools: Tools = (),
        *,
        in_thinking: bool = False,
    ) -> None:
        """`thinking` has the tags around it. `in_thinking`: the prompt ends with the opening one."""
        super().__init__(self._in_thinking if in_thinking else self._at_start)
        self._tags, self._format, self._tools = thinking, format, tools
        self._text, self._thoughts = TagTrimmer(), TagTrimmer(after_tag=True)
        self._call = ""  # the one under way, its tag included

    def finish(self) -> Parsed:
        return super().finish() + Parsed(self._text.finish(), self._thoughts.finish())

    def _at_start(self, last: bool) -> bool:
        """Nothing but white space so far."""
        body = self.pending.lstrip()
        self._add_text(self.pending[: len(self.pending) - len(body)])
        self.pending = body
        opening = self._tags[0] if self._tags else None
        if opening and body.startswith(opening):
            self.pending = body[len(opening) :]
            self._text.trim()
            self.state = self._in_thinking
            return True
        format = self._format
        untagged = format is not None and format.may_be_untagged is not None and format.may_be_untagged(body)
        if not last and (untagged or (opening and opening.startswith(body))):
            return False
        if untagged and self._add_calls(body):
            self.pending = ""
        self.state = self._in_text
        return True

    def _in_text(self, last: bool) -> bool:
        before, tag = self.take((self._format.opening,) if self._format else (), last)
        self._add_text(before)
        if tag is None:
            return False
        self._call, self.state = tag, self._in_call
        return True

    def _in_thinking(self, last: bool) -> bool:
        before, tag = self.take((self._tags[1],) if self._tags else (), last)
        self.parsed += Parsed(thinking=self._thoughts.push(before))
        if tag is None:
            return False
        self._thoughts.trim()
        self._text.trim()
        self.state = self._at_start
        return True

    def _in_call(self, last: bool) -> bool:
        assert self._format is not None
        opening, closing = self._format.opening, self._format.closing
        before, tag = self.take((closing or opening,), last)
        self._call += before
        if tag is None and not last:
            return False
        if not self._add_calls(self._call[len(opening) :]):
            self._add_text(self._call + (tag if tag and closing else ""))
        if tag and closing is None:
            self._call = tag
        else:
            self.state = self._in_text
        return True

    def _add_text(self, text: str) -> None:
        self.parsed += Parsed(self._text.push(text))

    def _add_calls(self, body: str) -> bool:
        """Add the calls of a body; False where it is malformed."""
        assert self._format is not None and self._format.parse is not None
        calls = self._format.parse(body, self._tools)
        if calls is None:
            return False
        self.parsed += Parsed(calls=calls)
        self._text.trim()
        return True
