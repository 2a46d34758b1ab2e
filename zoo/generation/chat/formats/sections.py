"""Formats that write a section of calls, each with a name and JSON between tokens: DeepSeek, Kimi K2, Solar."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, parse_arguments
from zoo.generation.loop.step import ToolCall

_FENCED = re.compile(r"\s*([^\s`]+)\s*```(?:json)?(.*)```\s*", re.DOTALL)
_NUMBERED = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")

OneCall = Callable[[str], ToolCall | None]


def _sectioned(
    section: tuple[str, str], call: tuple[str, str], read: OneCall, separators: tuple[str, ...], **more: Any
) -> TaggedCalls:
    """Calls between two tokens, in a section between two others. A model may leave out those of the section."""
    borders = re.compile("|".join(map(re.escape, call)))

    def parse(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
        calls = [read(part) for part in borders.split(body) if part.strip()]
        return tuple(filter(None, calls)) if calls and None not in calls else None

    return TaggedCalls(
        (section, call), parse, stray_tags=(section[1],), more_tokens=(*call, *separators), **more
    )


def _deepseek(text: str) -> ToolCall | None:
    """V3.1 writes a name and JSON; V3 and R1 a kind, "function", the name, and JSON as a block of code."""
    name, found, rest = text.partition("<｜tool▁sep｜>")
    fenced = _FENCED.fullmatch(rest)
    if name.strip() == "function" and fenced:
        name, rest = fenced.groups()
    return _call(name.strip(), rest) if found else None


def _kimi(text: str) -> ToolCall | None:
    """The id is the name with a number, and the template writes it again."""
    id, found, arguments = text.partition("<|tool_call_argument_begin|>")
    named = _NUMBERED.fullmatch(id.strip())
    return _call(named[1], arguments, id.strip()) if found and named else None


def _solar(text: str) -> ToolCall | None:
    id, _, rest = text.partition("<|tool_call:name|>")
    name, found, arguments = rest.partition("<|tool_call:args|>")
    return _call(name.strip(), arguments, id.strip()) if found else None


def _call(name: str, arguments: str, id: str | None = None) -> ToolCall | None:
    values = parse_arguments(arguments)
    return made_call(name, values, id) if name and values is not None else None


DEEPSEEK = _sectioned(
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    _deepseek,
    ("<｜tool▁sep｜>",),
)
KIMI_K2 = _sectioned(
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    _kimi,
    ("<|tool_call_argument_begin|>",),
)
SOLAR = _sectioned(
    ("<|tool_calls|>", "<|calls|>"),
    ("<|tool_call:begin|>", "<|tool_call:end|>"),
    _solar,
    ("<|tool_call:name|>", "<|tool_call:args|>"),
    thinking=("<|think|>", "<|end|>"),
    header="<|begin|>assistant",
    layout_tags=("<|begin|>assistant", "<|content|>", "<|end|>"),
)
