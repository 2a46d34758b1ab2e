"""Parsing of chat answers into text, thinking and tool calls, as they are generated.

A `Parser` holds text back and has states. `TaggedParser` parses answers with tags: thinking between two of them, calls
between two or after one, the rest is text. `TaggedCalls` and `CustomCalls` say how calls are written; a `CallFormat`
names one of them and the chat templates that belong to it (`answer_format`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zoo.architecture import CallFormat
from zoo.errors import PluginError
from zoo.frozen import Frozen, frozen
from zoo.generation.chat.tools import names_of
from zoo.generation.loop.step import ToolCall
from zoo.generation.loop.text_stream import partial_match
from zoo.host.registry import Registry
from zoo.tokenizer import Tokenizer

Tools = Sequence[Mapping[str, Any]]  # declarations
ParseCalls = Callable[[str, Tools], tuple[ToolCall, ...] | None]
SHOWN = 60  # characters of a malformed call in a warning
_TOKENS = re.compile(r"<[^<>\s]+>")
_BEGINS_LIKE_A_CALL = re.compile(r"\s*(?:[\w.:-]+\s*)?[(\[{<>]")


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
        self.malformed: list[str] = []  # the calls that cannot be read, as they are written

    def finish(self) -> Parsed:
        """What was held back, at the end of the answer. Half a call is text; a warning says so."""
        parsed = self.add("", last=True)
        if self.malformed:
            number = f"{len(self.malformed)} calls" if self.malformed[1:] else "a call"
            shown = f"{self.malformed[0].strip()!r:.{SHOWN}}"
            warnings.warn(
                f"{number} of tools in the answer cannot be read, and came as text: {shown}", stacklevel=3
            )
        return parsed

    def add(self, text: str, last: bool = False) -> Parsed:
        """What is certain after more text."""
        self.pending += text
        self.parsed = Parsed()
        while self.state(last):
            pass
        return self.parsed

    def take(self, tags: Iterable[str], last: bool) -> tuple[str, str | None]:
        """Take the text before the first of the tags, and this tag, out of what is pending.

        Without a tag: the text that cannot be the beginning of one, or all of it if `last`, and None.
        """
        tags = tuple(tags)
        places = [(start, -len(tag), tag) for tag in tags if (start := self.pending.find(tag)) >= 0]
        if places:
            start, _, tag = min(places)
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


@frozen()
class TaggedCalls(Frozen):
    """Calls between tags.

    Each of `tags` has an opening and a closing one; where the closing one is None, the next opening tag, a stray tag or the
    end of the answer closes the call. `parse` reads what stands between: it returns the calls, or None for a malformed
    text. Where it returns None and `unfinished` is true, the closing tag is part of a value, and the next one is tried. With
    `keeps_tags`, the text that these two get begins with the opening tag, and that of `parse` ends with the closing one.

    An answer for which `untagged` is true is held back to its end and read by `parse`, too. `stray_tags` are dropped
    directly after a call, `layout_tags` anywhere in the text. `more_tokens` are other tokens that the parser has to see,
    `thinking` the tags around thinking where the format has its own, `header` what begins the message after it.
    """

    tags: tuple[tuple[str, str | None], ...]
    parse: ParseCalls
    unfinished: Callable[[str], bool] | None = None
    untagged: Callable[[str], bool] | None = None
    keeps_tags: bool = False
    stray_tags: tuple[str, ...] = ()
    layout_tags: tuple[str, ...] = ()
    more_tokens: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = None
    header: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tags and the other tokens."""
        tags = (tag for pair in self.tags for tag in pair if tag)
        return (*tags, *self.stray_tags, *self.layout_tags, *self.more_tokens)


@frozen()
class CustomCalls(Frozen):
    """Calls that a parser of their own reads: `parser(tools)` makes it. `tokens` are those that it has to see.

    `thinking` and `header` are those of `TaggedCalls`.
    """

    parser: Callable[[Tools], Parser]
    tokens: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = None
    header: str = ""


class TaggedParser(Parser):
    """Parser of answers with tags. Thinking stands at the start; later its tags are text like any other."""

    def __init__(
        self,
        thinking: tuple[str, str] | None,
        syntax: TaggedCalls | None,
        tools: Tools = (),
        *,
        in_thinking: bool = False,
    ) -> None:
        """`thinking` has the tags around it. `in_thinking`: the prompt ends with the opening one.

        Calls are looked for when `tools`, their declarations, are given.
        """
        super().__init__(self._in_thinking if in_thinking else self._at_start)
        self._thinking_tags, self._tools = thinking, tools
        self._syntax = syntax or TaggedCalls((), lambda body, tools: None)
        self._closing = dict(self._syntax.tags) if tools else {}  # by the opening tags
        self._text, self._thoughts = TagTrimmer(), TagTrimmer(after_tag=True)
        self._thought = ""  # the thinking under way
        self._call = self._opening = ""  # the call under way, its tag included, and this tag
        self._first_end = 0  # where in the call its first closing tag ends

    def finish(self) -> Parsed:
        return super().finish() + Parsed(self._text.finish(), self._thoughts.finish())

    def _at_start(self, last: bool) -> bool:
        """Nothing but white space so far."""
        body = self.pending.lstrip()
        self._add_text(self.pending[: len(self.pending) - len(body)])
        self.pending = body
        opening = self._thinking_tags[0] if self._thinking_tags else None
        if opening and body.startswith(opening):
            self.pending = body[len(opening) :]
            self._text.trim()
            self.state = self._in_thinking
            return True
        may_be_calls = self._syntax.untagged if self._tools else None
        untagged = may_be_calls is not None and may_be_calls(body)
        if not last and (untagged or (opening and opening.startswith(body))):
            return False
        if untagged and self._add_calls(body):
            self.pending = ""
        elif untagged and self._names_a_tool(body):
            self.malformed.append(body)
        self.state = self._in_text
        return True

    def _in_text(self, last: bool) -> bool:
        before, tag = self.take((*self._closing, *self._syntax.layout_tags), last)
        self._add_text(before)
        if tag is None:
            return False
        if tag in self._closing:
            self._begin_call(tag)
        else:
            self._text.trim()
        return True

    def _in_thinking(self, last: bool) -> bool:
        before, tag = self.take((self._thinking_tags[1],) if self._thinking_tags else (), last)
        self.parsed += Parsed(thinking=self._thoughts.push(before))
        self._thought += before
        if tag is None:
            for opening in self._closing if last else ():
                _, found, body = self._thought.partition(opening)
                self._note(found + body, body)
            return False
        self._thoughts.trim()
        self._text.trim()
        self._thought, self.state = "", self._at_start
        return True

    def _begin_call(self, tag: str) -> None:
        self._call = self._opening = tag
        self._first_end, self.state = 0, self._in_call

    def _in_call(self, last: bool) -> bool:
        closing = self._closing[self._opening]
        before, tag = self.take((closing,) if closing else (self._opening, *self._syntax.stray_tags), last)
        self._call += before
        if tag is None and not last:
            return False
        inner = self._call[len(self._opening) :]
        body = self._call if self._syntax.keeps_tags else inner
        opens = closing is None and tag == self._opening
        if tag and not opens:
            self._call += tag
        if self._add_calls(self._call if self._syntax.keeps_tags else body):
            self.state = self._after_call
        elif closing and tag and self._syntax.unfinished and self._syntax.unfinished(body):
            self._first_end = self._first_end or len(self._call)
            return True
        else:  # what follows the first closing tag is read again
            end = self._first_end or len(self._call)
            self._note(self._call[:end], inner)
            self._add_text(self._call[:end])
            self.pending = self._call[end:] + self.pending
            self.state = self._in_text
        if opens:
            self._begin_call(self._opening)
        return True

    def _after_call(self, last: bool) -> bool:
        """Directly after a call."""
        body = self.pending.lstrip()
        stray = next((tag for tag in self._syntax.stray_tags if body.startswith(tag)), None)
        if stray is not None:
            self.pending = body[len(stray) :]
            return True
        if not last and any(tag.startswith(body) for tag in self._syntax.stray_tags):
            return False
        self.state = self._in_text
        return True

    def _add_text(self, text: str) -> None:
        self.parsed += Parsed(self._text.push(text))

    def _add_calls(self, body: str) -> bool:
        """Add the calls of a body; False where it is malformed."""
        calls = self._syntax.parse(body, self._tools)
        if calls is None:
            return False
        self.parsed += Parsed(calls=calls)
        self._text.trim()
        return True

    def _note(self, call: str, body: str) -> None:
        """Keep a malformed call for the warning, unless its tag was only mentioned."""
        if _BEGINS_LIKE_A_CALL.match(body) or self._names_a_tool(body):
            self.malformed.append(call)

    def _names_a_tool(self, body: str) -> bool:
        return any(re.search(rf"\b{re.escape(name)}\b", body) for name in names_of(self._tools))


THINK = ("<think>", "</think>")
THINKING = (THINK, ("[THINK]", "[/THINK]"))
"""The tags around thinking. A template that drops or writes it has the closing one; else the vocabulary has both."""


@frozen()
class AnswerFormat(Frozen):
    """How a model writes its answers: the tags of `thinking`, and how it writes `calls`; None for what it does not."""

    thinking: tuple[str, str] | None
    calls: TaggedCalls | CustomCalls | None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tags, and the parts of them that may be tokens. The parser must see those that are special tokens."""
        tags = (*(self.thinking or ()), *(self.calls.tokens if self.calls else ()))
        return tuple(dict.fromkeys(part for tag in tags for part in (tag, *_TOKENS.findall(tag))))

    def parser(self, prompt: str, tools: Tools = ()) -> Parser | None:
        """A parser of the answer to a rendered prompt; None where an answer is text and nothing else.

        Calls are looked for when `tools`, their declarations, are given.
        """
        if isinstance(self.calls, CustomCalls):
            return self.calls.parser(tools)
        if self.thinking is None and not (self.calls and tools):
            return None
        in_thinking = self.thinking is not None and prompt.rstrip().endswith(self.thinking[0].rstrip())
        return TaggedParser(self.thinking, self.calls, tools, in_thinking=in_thinking)


def call_format(template: str, registry: Registry) -> CallFormat | None:
    """The format of calls that a chat template is for, None where none or several have its markers.

    A plugin's format comes before the zoo's own, and one before those that it is `over`.
    """
    table = registry.table(CallFormat)
    claims = [claim for claim in table.pairs() if claim[1].matches(template)]
    lower = {name for _, format in claims for name in format.over}
    claims = [claim for claim in claims if claim[1].name not in lower]
    if claims[1:] and all(plugin.first_party for plugin, _ in claims):
        return None
    return table.winner(claims, claims[0][1].name)[1] if claims else None


def answer_format(tokenizer: Tokenizer, registry: Registry) -> AnswerFormat:
    """The format of the answers of a model with this tokenizer and chat template. PluginError for a plugin's mistake."""
    template = tokenizer.chat_template or ""
    format = call_format(template, registry)
    calls = format.load() if format else None
    if isinstance(calls, CustomCalls):
        return AnswerFormat(calls.thinking, calls)
    if format and not isinstance(calls, TaggedCalls):
        raise PluginError(f"{format.label}: {format.target} is no TaggedCalls or CustomCalls")
    if calls and calls.thinking:
        return AnswerFormat(calls.thinking, calls)
    thinking = (tags for tags in THINKING if tags[1] in template or None not in map(tokenizer.id, tags))
    return AnswerFormat(next(thinking, None), calls)
