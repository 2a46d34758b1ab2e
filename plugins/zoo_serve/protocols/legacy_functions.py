"""Chat's older form of tools: `functions`, `function_call`, and messages of the role "function".

They become tools and calls of the newer form, and the call of an answer is written in the older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zoo_serve.fields import OBJECT, TEXT, Field, object_of
from zoo_serve.protocols.conversation import named_tool
from zoo_serve.requests import RequestError

CALL = object_of({"name": TEXT, "arguments": TEXT})
FUNCTION = object_of({"name": TEXT}, {"description": TEXT, "parameters": OBJECT})
FIELDS = {
    "functions": Field(
        {"type": "array", "items": FUNCTION},
        about="The older form of `tools`: an answer has at most one call.",
    ),
    "function_call": Field({"anyOf": [{"enum": ["none", "auto"]}, object_of({"name": TEXT})]}),
}


def newer_form(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request with tools in place of functions; RequestError where it has both."""
    if not FIELDS.keys() & values.keys():
        return dict(values)
    for name in ("tools", "tool_choice"):
        if name in values:
            raise RequestError(400, f"`{name}` and `functions` cannot be given together", param=name)
    choice = values.get("function_call", "auto")
    return {
        **values,
        "tools": [{"type": "function", "function": one} for one in values.get("functions", ())],
        "tool_choice": choice if isinstance(choice, str) else named_tool(choice["name"]),
        "parallel_tool_calls": False,
    }


def newer_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with tool calls and the results of tools in place of function calls and their results."""
    newer: list[dict[str, Any]] = []
    id = ""
    for number, message in enumerate(messages):
        message = dict(message)
        call = message.pop("function_call", None)
        if call is not None:
            id = f"call_{number}"
            message["tool_calls"] = [{"id": id, "type": "function", "function": call}]
        if message["role"] == "function":
            message |= {"role": "tool", "tool_call_id": id}
        newer.append(message)
    return newer


def older_form(part: Mapping[str, Any]) -> dict[str, Any]:
    """A message, or a part of one in a stream, with its call as a function call."""
    older = {key: value for key, value in part.items() if key != "tool_calls"}
    for call in part.get("tool_calls", ()):
        older["function_call"] = call["function"]
    return older


def older_reason(reason: str | None) -> str | None:
    """Why an answer ended, in the older form."""
    return "function_call" if reason == "tool_calls" else reason
