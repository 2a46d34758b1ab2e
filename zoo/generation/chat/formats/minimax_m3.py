"""MiniMax M3's calls: XML whose tags have a token before them, and elements within elements for objects and lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, parameters_of, properties_of
from zoo.generation.chat.values import typed_value
from zoo.generation.loop.step import ToolCall

MARK = "]<]minimax[>["
_ELEMENT = re.compile(
    r'<(?:(?P<closed>/)|invoke name="(?P<name>[^"]+)")?(?P<tag>[^<>\s"]*)>(?P<text>.*)', re.DOTALL
)


class _Element:
    """An element that is open: its schema, its text, and what its elements are."""

    def __init__(self, tag: str, schema: object) -> None:
        self.tag, self.schema, self.text = tag, schema, ""
        self.entries: list[tuple[str, Any]] = []

    def schema_of(self, tag: str) -> Any:
        """The schema of an element within it."""
        items = self.schema.get("items") if isinstance(self.schema, Mapping) else None
        return properties_of(self.schema).get(tag, items if tag == "item" else None)

    def value(self, root: object) -> Any:
        """A list of items, an object, or a typed text."""
        if not self.entries:
            return typed_value(self.text, self.schema, root)
        if all(tag == "item" for tag, _ in self.entries):
            return [value for _, value in self.entries]
        return dict(self.entries)


def parse(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The calls between the tags of a section."""
    calls: list[ToolCall] = []
    opened: list[_Element] = []
    name = ""
    root: Mapping[str, Any] = {}
    for part in body.split(MARK)[1:]:
        if not (found := _ELEMENT.fullmatch(part)):
            return None
        if found["closed"]:
            if not opened or opened[-1].tag != found["tag"]:
                return None
            element = opened.pop()
            if opened:
                opened[-1].entries.append((element.tag, element.value(root)))
            else:
                calls.append(made_call(name, dict(element.entries)))
        elif not opened:
            if not found["name"]:
                return None
            name, root = found["name"], parameters_of(tools, found["name"])
            opened.append(_Element("invoke", root))
        else:
            opened.append(_Element(found["tag"], opened[-1].schema_of(found["tag"])))
            opened[-1].text = found["text"]
    return None if opened else tuple(calls) or None


MINIMAX_M3 = TaggedCalls(
    ((f"{MARK}<tool_call>", f"{MARK}</tool_call>"),),
    parse,
    more_tokens=(MARK,),
    thinking=("<mm:think>", "</mm:think>"),
)
