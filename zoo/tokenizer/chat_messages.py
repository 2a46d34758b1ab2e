"""The messages of a conversation in the form of OpenAI's interface, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zoo.errors import TokenizerError, ZooError

Message = dict[str, Any]

THINKING = ("reasoning_content", "thinking", "reasoning")


def checked_message(message: object, where: str, error: type[ZooError] = TokenizerError) -> Message:
    """A message without keys of value None and empty calls; an `error` that begins with `where` for a malformed one.

    The role is a string, and the content a string or a list of parts `{"type": "text", "text": …}`. An assistant's
    content may be None or missing; without tool calls it becomes "". The arguments of calls are an object, or its JSON
    text.
    """
    if not isinstance(message, Mapping):
        raise error(f"{where} must be an object with a role and a content")
    message = {key: value for key, value in message.items() if value is not None}
    if not isinstance(message.get("role"), str):
        raise error(f"{where}: role must be a string, it is {_kind(message, 'role')}")
    if calls := message.get("tool_calls"):
        for call in calls if isinstance(calls, list | tuple) else [calls]:
            _check_call(call, where, error)
    else:
        message.pop("tool_calls", None)
        if message["role"] == "assistant":
            message.setdefault("content", "")
    content = message.get("content", "" if calls else None)
    if isinstance(content, list | tuple):
        for number, part in enumerate(content, 1):
            _check_part(part, f"{where}: part {number} of its content", error)
    elif not isinstance(content, str):
        kind = _kind(message, "content")
        raise error(f"{where}: content must be a string or a list of text parts, it is {kind}")
    return message


def with_thinking(message: Message) -> Message:
    """A message whose thinking, under one of the keys THINKING, stands under the two that templates read."""
    thinking = next((message[key] for key in THINKING if key in message), None)
    if thinking is None:
        return message
    return {"thinking": thinking, **message, "reasoning_content": thinking}


def text_of(message: Mapping[str, Any]) -> str:
    """The content as one text, parts on lines of their own; "" where there is none."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a tool call, decoded where they are JSON text; ValueError for malformed text."""
    arguments = call["function"].get("arguments", {})
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _kind(message: Message, key: str) -> str:
    """What is wrong with a value."""
    return f"of type {type(message[key]).__name__}" if key in message else "missing"


def _check_part(part: Any, where: str, error: type[ZooError]) -> None:
    """An `error` for a part of a content that is not text."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind != "text":
        raise error(f"{where} is of type {kind[:40]}, and the model takes text")
    if kind is None or not isinstance(part.get("text"), str):
        raise error(f'{where} must be {{"type": "text", "text": …}}')


def _check_call(call: Any, where: str, error: type[ZooError]) -> None:
    """An `error` for a malformed tool call."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise error(
            f"{where}: each of tool_calls must be an object with a function, which has a name and arguments"
        )
    try:
        arguments = arguments_of(call)
    except (ValueError, RecursionError) as problem:
        raise error(f"{where}: the arguments of {function['name']} are not JSON ({problem})") from None
    if not isinstance(arguments, Mapping):
        raise error(f"{where}: the arguments of {function['name']} must be an object")
