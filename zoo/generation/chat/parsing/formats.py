"""The formats of chat models' answers, recognised by the chat template, and the parsers of their calls.

A parser of calls gives None for a malformed text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing.parser import (
    CHANNEL,
    MESSAGE,
    TOKENS,
    CallFormat,
    HarmonyParser,
    Parser,
    TaggedParser,
    Tools,
)
from zoo.generation.chat.tools import call_of, names_of, new_id, parse_model_json
from zoo.generation.loop.step import ToolCall
from zoo.tokenizer import Tokenizer

ARGS, CALL_ID = "[ARGS]", "[CALL_ID]"
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_NAMED = re.compile(r"\s*([^\s\[]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?\[ARGS\](.*)", re.DOTALL)
_SEPARATORS = re.compile(r"[\s;,]*")
_FIRST_KEYS = ('{"name"', '{"type"', '{"function"', '{"parameters"', '{"id"')


def hermes(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The call between Qwen's and Hermes' tags: a JSON object, or Qwen3-Coder's `<function=…>` with parameters."""
    if found := _FUNCTION.fullmatch(body):
        arguments = _parameters(found[2], _properties(found[1], tools))
        return None if arguments is None else (ToolCall(new_id(), found[1], arguments),)
    call = call_of(parse_model_json(body))
    return None if call is None else (call,)


def _properties(name: str, tools: Tools) -> Mapping[str, Any]:
    """The schemas of a tool's parameters, by their names."""
    schema = next((t["function"].get("parameters") for t in tools if t["function"]["name"] == name), None)
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _parameters(body: str, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values between `<parameter=…>` tags: text where the schema says so, else JSON where it is some."""
    values: dict[str, Any] = {}
    place = 0
    while found := _PARAMETER.match(body, place):
        schema = properties.get(found[1])
        plain = isinstance(schema, Mapping) and schema.get("type") == "string"
        value = None if plain else parse_model_json(found[2])
        values[found[1]] = found[2] if value is None and found[2].strip() != "null" else value
        place = found.end()
    return None if body[place:].strip() else values


def mistral(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The calls after `[TOOL_CALLS]`: a JSON list, or a name, `[ARGS]` and the arguments."""
    if found := _NAMED.fullmatch(body):
        name, id, arguments = found.groups()
        call = call_of({"name": name, "id": id, "arguments": arguments})
        return None if call is None else (call,)
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
        "llama3",
        ("<|start_header_id|>", '"parameters"'),
        "<|python_tag|>",
        None,
        llama,
        may_be_llama,
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
    for tags in THINKING:
        if tags[1] in template or all(tokenizer.id(tag) is not None for tag in tags):
            return AnswerFormat(tags, format)
    return AnswerFormat(None, format)
