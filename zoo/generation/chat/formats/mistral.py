"""Mistral's calls: `[TOOL_CALLS]` and a list in JSON, or a name, `[ARGS]` and the arguments."""

from __future__ import annotations

import re

from zoo.generation.chat.formats.json_calls import json_calls
from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, parse_arguments
from zoo.generation.loop.step import ToolCall

_NAMED = re.compile(r"\s*([^\s\[{]+)\s*(?:\[CALL_ID\]\s*([^\s\[]+)\s*)?\[ARGS\](.*)", re.DOTALL)


def parse(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The calls after the tag."""
    if not (found := _NAMED.fullmatch(body)):
        return json_calls(body)
    arguments = parse_arguments(found[3])
    return None if arguments is None else (made_call(found[1], arguments, found[2]),)


MISTRAL = TaggedCalls((("[TOOL_CALLS]", None),), parse, more_tokens=("[ARGS]", "[CALL_ID]"))
