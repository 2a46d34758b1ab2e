"""Formats whose calls are JSON: one object, several, or a list, each with a name and arguments."""

from __future__ import annotations

from typing import Any

from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import call_of, made_call
from zoo.generation.chat.values import JSON, ends_in_string, read_literal
from zoo.generation.loop.step import ToolCall

SEPARATORS = " \t\r\n;,"


def json_calls(body: str, tools: Tools = ()) -> tuple[ToolCall, ...] | None:
    """The calls that JSON values are, objects or lists of objects; None where one is none. An empty list has no calls."""
    values = json_values(body)
    calls = [call_of(value) for value in values or ()]
    return None if values is None or None in calls else tuple(filter(None, calls))


def json_values(body: str) -> list[Any] | None:
    """The JSON values of a text, with white space, "," or ";" between them, lists by their items; None for other text.

    One value may be a Python literal.
    """
    written: list[Any] = []
    rest = body.lstrip()
    try:
        while rest:
            value, end = JSON.raw_decode(rest)
            written.append(value)
            rest = rest[end:].lstrip(SEPARATORS)
    except (ValueError, RecursionError):
        try:
            written = [read_literal(body)]
        except ValueError:
            return None
    values = [item for value in written for item in (value if isinstance(value, list) else [value])]
    return values if written else None


def in_json_string(body: str) -> bool:
    """Whether JSON, at the start of a text or after its first ">", ends within a string."""
    start = body.lstrip()
    value = start if start[:1] in ("{", "[") else start.partition(">")[2]
    return value.lstrip()[:1] in ("{", "[") and ends_in_string(value, '"')


def name_keyed(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """Calls as objects of one key, the name, whose value is the arguments: `[{"add": {"x": 1}}]`."""
    values = json_values(body)
    if values is None or not all(isinstance(v, dict) and len(v) == 1 for v in values):
        return None
    pairs = [pair for value in values for pair in value.items()]
    return tuple(made_call(*pair) for pair in pairs) if all(isinstance(v, dict) for _, v in pairs) else None


def _listed(opening: str, closing: str | None, **more: Any) -> TaggedCalls:
    return TaggedCalls(((opening, closing),), json_calls, in_json_string, **more)


HERMES = _listed("<tool_call>", "</tool_call>")
ERNIE = _listed("<tool_call>", "</tool_call>", layout_tags=("<response>", "</response>"))
TOOL_CALLS = _listed("<tool_calls>", "</tool_calls>")
HUNYUAN_A13B = _listed("<tool_calls>", "</tool_calls>", layout_tags=("<answer>", "</answer>"))
NEMOTRON = _listed("<TOOLCALL>", "</TOOLCALL>")
GRANITE = TaggedCalls(
    (("<|tool_call|>", None), ("<tool_call>", "</tool_call>")),
    json_calls,
    in_json_string,
    stray_tags=("<|/tool_call|>",),
)
COMMAND_R = TaggedCalls(
    (("Action:\n```json", "```"), ("Action: ```json", "```"), ("Action:```json", "```")),
    json_calls,
    in_json_string,
)
COMMAND_A = _listed(
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    thinking=("<|START_THINKING|>", "<|END_THINKING|>"),
    layout_tags=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)
FIREFUNCTION = TaggedCalls(
    (("functools[", None),), lambda text, tools: json_calls(text.removeprefix("functools")), keeps_tags=True
)
APERTUS = TaggedCalls(
    (("<|tools_prefix|>", "<|tools_suffix|>"),),
    name_keyed,
    in_json_string,
    thinking=("<|inner_prefix|>", "<|inner_suffix|>"),
)
INTERNLM = _listed("<|action_start|><|plugin|>", "<|action_end|>")
GIGACHAT = TaggedCalls(
    (("function call<|role_sep|>\n", None), ("<|function_call|>", None)),
    json_calls,
    stray_tags=("<|message_sep|>",),
    layout_tags=("<|message_sep|>",),
)
