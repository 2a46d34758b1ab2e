"""What the protocols of conversations in parts share: messages for `zoo.chat`, and a stream of one part after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.generation.loop.step import ToolCall
from zoo_serve.endpoint import Event
from zoo_serve.requests import Answer, Delta, RequestError

Message = dict[str, Any]
# The keys of an assistant's message in the order in which a model writes them.
WRITTEN = ("reasoning_content", "content", "tool_calls")


def content_of(parts: Sequence[Mapping[str, Any]]) -> Any:
    """A message's content of text parts: a text where there is one, else a list of parts."""
    texts = [part["text"] for part in parts]
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def add_to_answer(messages: list[Message], key: str, value: Any) -> None:
    """Add thinking, text or calls to the assistant's message that ends `messages`, or begin one where that is complete."""
    last = messages[-1] if messages else {}
    later = WRITTEN[WRITTEN.index(key) :] if key != "tool_calls" else ()
    if last.get("role") != "assistant" or any(name in last for name in later):
        messages.append({"role": "assistant", key: value})
    else:
        last[key] = [*last.get(key, ()), *value] if key == "tool_calls" else value


def function_tool(name: str, description: str | None, parameters: Any) -> dict[str, Any]:
    """A tool in the form of OpenAI's chat."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {
        "type": "function",
        "function": {key: value for key, value in function.items() if value is not None},
    }


def named_tool(name: str) -> dict[str, Any]:
    """The `tool_choice` of one tool in the form of OpenAI's chat."""
    return {"type": "function", "function": {"name": name}}


def call_of(id: str, name: str, arguments: Any, where: str) -> Message:
    """A call of an earlier answer; its arguments are an object or its JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        param = where.partition("[")[0]
        raise RequestError(400, f"`{where}` must be the JSON text of an object", param=param)
    return ToolCall(id, name, dict(arguments)).to_json()


class PartStream:
    """The events of an answer as parts that follow each other: thinking, text, and calls, each of which comes whole."""

    def __init__(self, request: Any, answer: Answer) -> None:
        self.request, self.answer = request, answer
        self.parts = 0  # begun so far
        self.kind: str | None = None  # of the part that is not complete

    def add(self, delta: Delta) -> Iterator[Event]:
        for kind, value in delta.parts:
            if kind != self.kind:
                yield from self.close()
                self.parts, self.kind = self.parts + 1, kind
                yield from self.begin(kind, value)
            yield from self.grow(kind, value)
            if kind == "call":
                yield from self.close()

    def close(self) -> Iterator[Event]:
        """The events that complete the part that is not complete."""
        if self.kind is not None:
            yield from self.complete(self.kind, self.parts - 1)
            self.kind = None

    def begin(self, kind: str, value: Any) -> Iterator[Event]:
        """The events before a part of this kind, whose number is `parts` - 1; `value` is the first of it."""
        raise NotImplementedError

    def grow(self, kind: str, value: Any) -> Iterator[Event]:
        """The events of more of a part."""
        raise NotImplementedError

    def complete(self, kind: str, number: int) -> Iterator[Event]:
        """The events after a part, which `answer` has whole."""
        raise NotImplementedError
