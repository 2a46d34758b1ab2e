"""Parsing of chat answers into text, thinking and tool calls, as they are generated.

A `Parser` holds text back and has states. `TaggedParser` parses answers with tags: thinking between two of them, calls
between two or after one, the rest is text. A parser of calls returns None for a malformed text. The chat template tells
the format of a model's answers (`answer_format`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.tools import call_of, names_of, new_id, parse_model_json
from zoo.generation.loop.step import ToolCall
from zoo.generation.loop.text_stream import partial_match
from zoo.tokenizer import Tokenizer

Tools = Sequence[Mapping[str, Any]]  # declarations
ParseCalls = Callable[[str, Tools], tuple[ToolCall, ...] | None]


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

    def finish(self) -> Parsed:
        """What was held back, at the end of the answer. Half a call is text."""
        return self.add("", last=True)

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


START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
TOKENS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

_RECIPIENT = re.compile(r"(?:^|\s)to=functions\.([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_HEADER_STARTS = (CHANNEL, START, " to=")


class HarmonyParser(Parser):
    """Parser of gpt-oss' harmony format: messages with a header that names their channel and their recipient.

    `<|channel|>analysis<|message|>…<|end|>` is thinking, `<|start|>assistant<|channel|>final<|message|>…` the answer, and
    `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` a call. The prompt ends with
    `<|start|>assistant`, so an answer begins within a header.
    Source: https://cookbook.openai.com/articles/openai-harmony
    """

    def __init__(self, calls: bool) -> None:
        """`calls`: whether messages to functions are calls; otherwise they are text."""
        super().__init__(self._in_header)
        self._calls = calls
        self._header = self._channel = self._recipient = self._call = ""

    def _in_header(self, last: bool) -> bool:
        before, tag = self.take((MESSAGE,), last)
        self._header += before
        header = self._header
        if not any(header.startswith(start) or start.startswith(header) for start in _HEADER_STARTS):
            self.pending = header + (tag or "") + self.pending
            self._begin("", "")
            return True
        if tag is None:
            if last:
                self.parsed += Parsed(header)
            return False
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header.replace(CHANNEL, " "))
        self._begin(channel[1] if channel else "", recipient[1] if recipient and self._calls else "")
        return True

    def _begin(self, channel: str, recipient: str) -> None:
        self._channel, self._recipient, self._call = channel, recipient, ""
        self.state = self._in_message

    def _in_message(self, last: bool) -> bool:
        """Within a message, or between two."""
        before, tag = self.take((START, CHANNEL, *ENDS), last)
        if self._recipient:
            self._call += before
            arguments = parse_model_json(self._call) if tag or last else None
            if isinstance(arguments, dict):
                self.parsed += Parsed(calls=(ToolCall(new_id(), self._recipient, arguments),))
            elif tag or last:
                self.parsed += Parsed(f"{self._header}{MESSAGE}{self._call}")
        elif self._channel == "analysis":
            self.parsed += Parsed(thinking=before)
        else:
            self.parsed += Parsed(before)
        if tag is None:
            return False
        self._begin("", "")
        if tag in (START, CHANNEL):
            self._header, self.state = tag, self._in_header
        return True


ARGS, CALL_ID = "[ARGS]", "[CALL_ID]"
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_NAMED = re.compile(r"\s*([^\s\[]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?\[ARGS\](.*)", re.DOTALL)
_SEPARATORS = re.compile(r"[\s;,]*")
_FIRST_KEYS = ('{"name"', '{"type"', '{"function"', '{"parameters"', '{"id"')


def hermes(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The call between Qwen's and Hermes' tags: a JSON object, or Qwen3-Coder's `<function=…>` with parameters."""
    if found := _FUNCTION.fullmatch(body):
        arguments = _parameters(found[2], found[1], tools)
        return None if arguments is None else (ToolCall(new_id(), found[1], arguments),)
    return _all_calls([parse_model_json(body)])


def _parameters(body: str, name: str, tools: Tools) -> dict[str, Any] | None:
    """The values between `<parameter=…>` tags: text where the tool's schema says so, else JSON where it is some."""
    declared = next((t["function"].get("parameters") for t in tools if t["function"]["name"] == name), None)
    properties = (declared or {}).get("properties")
    values: dict[str, Any] = {}
    place = 0
    while found := _PARAMETER.match(body, place):
        schema = properties.get(found[1]) if isinstance(properties, Mapping) else None
        plain = isinstance(schema, Mapping) and schema.get("type") == "string"
        value = None if plain else parse_model_json(found[2])
        values[found[1]] = found[2] if value is None and found[2].strip() != "null" else value
        place = found.end()
    return None if body[place:].strip() else values


def mistral(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The calls after `[TOOL_CALLS]`: a JSON list, or a name, `[ARGS]` and the arguments."""
    if found := _NAMED.fullmatch(body):
        name, id, arguments = found.groups()
        return _all_calls([{"name": name, "id": id, "arguments": arguments}])
    values = parse_model_json(body)
    return _all_calls(values) if isinstance(values, list) else None


def llama(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """LLaMA's calls: JSON objects, several with ";" between them. None when one names no tool that was declared."""
    decoder = json.JSONDecoder(strict=False)
    values, place, known = [], len(body) - len(body.lstrip()), names_of(tools)
    while place < len(body):
        try:
            value, place = decoder.raw_decode(body, place)
        except (ValueError, RecursionError):
            return None
        values.append(value)
        separator = _SEPARATORS.match(body, place)
        place = separator.end() if separator else place
    found = _all_calls(values)
    return found if found is not None and all(call.name in known for call in found) else None


def may_be_llama(body: str) -> bool:
    """Whether an answer that begins like this may be LLaMA's calls, which have no mark before them."""
    begun = "".join(body.split())
    return any(key.startswith(begun) or begun.startswith(key) for key in _FIRST_KEYS)


def _all_calls(values: Sequence[Any]) -> tuple[ToolCall, ...] | None:
    """The calls that all the values are; None when one is none, or there are no values."""
    found = [call for call in map(call_of, values) if call is not None]
    return tuple(found) if found and len(found) == len(values) else None


THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""The tags around thinking. A template that drops or writes it has the closing one; else the vocabulary has both."""

FORMATS = (
    CallFormat("harmony", (CHANNEL, MESSAGE), tokens=TOKENS),
    CallFormat("hermes", ("<tool_call>",), "<tool_call>", "</tool_call>", hermes),
    CallFormat("mistral", ("[TOOL_CALLS]",), "[TOOL_CALLS]", None, mistral, tokens=(ARGS, CALL_ID)),
    CallFormat(
        "llama3", ("<|start_header_id|>", '"parameters"'), "<|python_tag|>", None, llama, may_be_llama
    ),
)


@frozen()
class AnswerFormat(Frozen):
    """How a model writes its answers: the tags of `thinking`, and how it writes `calls`; None for what it does not."""

    thinking: tuple[str, str] | None
    calls: CallFormat | None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tags. The parser must see those that are special tokens."""
        calls = () if self.calls is None else (self.calls.opening, self.calls.closing, *self.calls.tokens)
        return tuple(filter(None, (*(self.thinking or ()), *calls)))

    def parser(self, prompt: str, tools: Tools = ()) -> Parser | None:
        """A parser of the answer to a rendered prompt; None where an answer is text and nothing else.

        Calls are looked for when `tools`, their declarations, are given.
        """
        if self.calls is not None and self.calls.parse is None:
            return HarmonyParser(bool(tools))
        calls = self.calls if tools else None
        if self.thinking is None and calls is None:
            return None
        in_thinking = self.thinking is not None and prompt.rstrip().endswith(self.thinking[0])
        return TaggedParser(self.thinking, calls, tools, in_thinking=in_thinking)


def answer_format(tokenizer: Tokenizer) -> AnswerFormat:
    """The format of the answers of a model with this tokenizer and chat template."""
    template = tokenizer.chat_template or ""
    format = next((f for f in FORMATS if all(marker in template for marker in f.template_markers)), None)
    if format is not None and format.parse is None:
        return AnswerFormat(None, format)
    thinking = (tags for tags in THINKING if tags[1] in template or None not in map(tokenizer.id, tags))
    return AnswerFormat(next(thinking, None), format)
