"""Gemma's calls: `call:NAME{key:value,…}`, strings between tokens, keys without quotes."""

from __future__ import annotations

import re
from typing import Any

from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, parameters_of, properties_of
from zoo.generation.chat.values import typed_value
from zoo.generation.loop.step import ToolCall

_HEAD = re.compile(r"\s*call:([^\s{]+)\s*(?=\{)")
_KEY = re.compile(r"\s*([^\s{}\[\],:]+)\s*:\s*")
_BARE = re.compile(r"[^{}\[\],]*")
_SPACE = re.compile(r"\s*")


class _Reader:
    """Reads one value after the other from a text, strings between two tokens `quote`. ValueError for malformed text."""

    def __init__(self, text: str, quote: str, place: int) -> None:
        self.text, self.quote, self.place = text, quote, place

    def take(self, expected: str) -> bool:
        """Whether a text comes next, after white space; it is then taken."""
        place = _SPACE.match(self.text, self.place).end()  # type: ignore[union-attr]
        if found := self.text.startswith(expected, place):
            self.place = place + len(expected)
        return found

    def value(self, schema: object, root: object) -> Any:
        """A string, an object, a list, or a bare value, which its schema types."""
        if self.take(self.quote):
            start, self.place = self.place, self.text.index(self.quote, self.place)
            string = self.text[start : self.place]
            self.place += len(self.quote)
            return string
        if self.take("{"):
            return self.entries({}, {})
        if self.take("["):
            items: list[Any] = []
            while not self.take("]"):
                if items and not self.take(","):
                    raise ValueError("no comma between two items")
                items.append(self.value({}, {}))
            return items
        bare = _BARE.match(self.text, self.place)
        if bare is None or not bare[0].strip():
            raise ValueError("no value")
        self.place = bare.end()
        return typed_value(bare[0].strip(), schema, root)

    def entries(self, properties: Any, root: Any) -> dict[str, Any]:
        """The entries of an object, after its opening brace."""
        values: dict[str, Any] = {}
        while not self.take("}"):
            if values and not self.take(","):
                raise ValueError("no comma between two entries")
            if not (key := self.key()):
                raise ValueError("no key")
            values[key] = self.value(properties.get(key), root)
        return values

    def key(self) -> str | None:
        """The key that comes next, with or without quotes."""
        if self.take(self.quote):
            key, found, _ = self.text[self.place :].partition(self.quote)
            self.place += len(key) + len(self.quote)
            return key if found and self.take(":") else None
        if match := _KEY.match(self.text, self.place):
            self.place = match.end()
        return match[1] if match else None


def _calls(opening: str, closing: str, quote: str, thinking: tuple[str, str] | None = None) -> TaggedCalls:
    def parse(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
        calls: list[ToolCall] = []
        reader = _Reader(body, quote, 0)
        while body[reader.place :].strip():
            if not (head := _HEAD.match(body, reader.place)):
                return None
            schema = parameters_of(tools, head[1])
            reader.place = head.end() + 1
            try:
                values = reader.entries(properties_of(schema), schema)
            except (ValueError, RecursionError):
                return None
            calls.append(made_call(head[1], values))
        return tuple(calls) or None

    return TaggedCalls(
        ((opening, closing),),
        parse,
        lambda body: body.count(quote) % 2 == 1,
        more_tokens=(quote,),
        thinking=thinking,
    )


FUNCTION_GEMMA = _calls("<start_function_call>", "<end_function_call>", "<escape>")
GEMMA_4 = _calls("<|tool_call>", "<tool_call|>", '<|"|>', ("<|channel>thought\n", "<channel|>"))
