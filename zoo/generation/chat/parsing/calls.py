"""Parsers of tool calls in the formats of models: text to calls, or None where it is malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.generation.chat.tools import call_of, names_of, new_id, parse_model_json
from zoo.generation.loop.step import ToolCall

Tools = Sequence[Mapping[str, Any]]  # declarations
ParseCalls = Callable[[str, Tools], tuple[ToolCall, ...] | None]

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
