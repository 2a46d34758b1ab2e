"""`/v1/responses`: OpenAI's Responses, without what it keeps on its servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from zoo.frozen import frozen
from zoo_serve.endpoint import Endpoint, Event
from zoo_serve.fields import check
from zoo_serve.protocols import openai
from zoo_serve.protocols.conversation import (
    Message,
    PartStream,
    add_to_answer,
    call_of,
    content_of,
    function_tool,
    named_tool,
)
from zoo_serve.protocols.responses_fields import FIELDS, REPEATABLE, REPEATED, RESPONSE, TOOL
from zoo_serve.requests import Answer, GenerationRequest, RequestError

NO_STATE = "this server keeps no state; send the whole conversation in `input`"
STATE = ("previous_response_id", "conversation", "background", "store")


@frozen(kw_only=True)
class ResponseRequest(GenerationRequest):
    """A request for text with the fields that the response repeats, and the namespaces of functions by their names."""

    repeated: Mapping[str, Any] = field(default_factory=dict)
    namespaces: Mapping[str, str] = field(default_factory=dict)


def parse(body: Mapping[str, Any]) -> ResponseRequest:
    """Parse the body of a request."""
    for name in STATE if isinstance(body, Mapping) else ():
        if body.get(name) not in (None, False):
            raise RequestError(400, f"`{name}`: {NO_STATE}", param=name)
    values, settings = FIELDS.checked(body)
    asked = values.get("text", {}).get("format")
    if asked is not None:
        asked = {"type": asked["type"], "json_schema": asked}
    settings |= openai.format_settings(asked, settings, "text.format")
    settings |= openai.end_settings(values, settings)
    tools, namespaces, notes = tools_of(values.get("tools", ()))
    choice: Any = values.get("tool_choice", "auto")
    if not isinstance(choice, str):
        if choice["type"] == "allowed_tools":
            tools, choice = openai.allowed_tools(tools, choice)
        else:
            choice = named_tool(choice["name"])
    verbosity = values.get("text", {}).get("verbosity")
    return ResponseRequest(
        model=values.get("model"),
        messages=tuple(messages_of(values)),
        tools=tools,
        tool_choice=choice,
        namespaces=namespaces,
        notes=notes,
        parallel_calls=values.get("parallel_tool_calls", True),
        variables={
            **({"verbosity": verbosity} if verbosity else {}),
            **openai.effort_variables(values.get("reasoning", {}).get("effort")),
            **values.get("chat_template_kwargs", {}),
        },
        settings=settings,
        strategy=values.get("strategy"),
        stream=values.get("stream", False),
        repeated={name: body[name] for name in REPEATABLE if body.get(name) is not None},
    )


def tools_of(
    asked: Sequence[Mapping[str, Any]],
) -> tuple[tuple[Mapping[str, Any], ...], dict[str, str], tuple[str, ...]]:
    """The functions in the form of OpenAI's chat, the namespaces of some by name, and a line for each kind that is left out.

    A function of a namespace is offered under its own name; RequestError for one that another function has.
    """
    tools: dict[str, Mapping[str, Any]] = {}
    namespaces: dict[str, str] = {}
    left_out: set[str] = set()

    def add(tool: Mapping[str, Any], namespace: str | None, where: str) -> None:
        if tool["type"] != "function":
            left_out.add(str(tool["type"])[:40])
            return
        check(tool, TOOL, where)
        name = tool["name"]
        if name in tools and (namespace or name in namespaces):
            raise RequestError(400, f"`{where}.name`: two tools are called {name!r:.60}", param="tools")
        tools[name] = function_tool(name, tool.get("description"), tool.get("parameters"))
        if namespace is not None:
            namespaces[name] = namespace

    for number, tool in enumerate(asked):
        if tool["type"] == "namespace":
            for inner, one in enumerate(tool["tools"]):
                add(one, tool["name"], f"tools[{number}].tools[{inner}]")
        else:
            add(tool, None, f"tools[{number}]")
    notes = tuple(
        f"tools of the type {kind} are left out: nothing here runs them" for kind in sorted(left_out)
    )
    return tuple(tools.values()), namespaces, notes


def messages_of(values: Mapping[str, Any]) -> list[Message]:
    """The messages of the instructions and the input. Reasoning, a message and calls that follow each other are one."""
    messages: list[Message] = []
    if "instructions" in values:
        messages.append({"role": "system", "content": values["instructions"]})
    items = values["input"]
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    for number, item in enumerate(items):
        kind = item.get("type") or "message"
        if kind == "message":
            content = _content(item["content"])
            if item["role"] == "assistant":
                add_to_answer(messages, "content", content)
            else:  # "developer" is the newer name of "system"
                role = "user" if item["role"] == "user" else "system"
                messages.append({"role": role, "content": content})
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary") or ()
            if parts:
                add_to_answer(messages, "reasoning_content", "\n".join(part["text"] for part in parts))
        elif kind == "function_call":
            where = f"input[{number}].arguments"
            call = call_of(item["call_id"], item["name"], item["arguments"], where)
            add_to_answer(messages, "tool_calls", [call])
        else:
            name = {"name": item["name"]} if item.get("name") else {}
            content = _content(item["output"])
            messages.append({"role": "tool", "tool_call_id": item["call_id"], **name, "content": content})
    if not messages:
        raise RequestError(400, "`input` has no message", param="input")
    return messages


def _content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return content_of([{"text": part.get("text", part.get("refusal"))} for part in content])


def respond(request: ResponseRequest, answer: Answer) -> dict[str, Any]:
    """The response of an answer that is finished, or, before its first part, of one that is in progress."""
    choice = answer.choices[0]
    status = {None: "in_progress", "length": "incomplete"}.get(choice.finish_reason, "completed")
    cut = status == "incomplete"
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "model": answer.model,
        **{**REPEATED, **request.repeated},
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [item_of(request, answer, number) for number in range(len(choice.parts))],
        **({} if status == "in_progress" else {"usage": _usage(answer)}),
        "background": False,
        "store": False,
    }


def _usage(answer: Answer) -> dict[str, Any]:
    counts = answer.usage
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.completion,
        "output_tokens_details": {"reasoning_tokens": counts.thinking},
        "total_tokens": counts.prompt + counts.completion,
    }


def item_of(request: ResponseRequest, answer: Answer, number: int) -> dict[str, Any]:
    """The output item of a complete part of an answer."""
    choice = answer.choices[0]
    kind, value = choice.parts[number]
    cut = choice.finish_reason == "length" and kind != "call" and number == len(choice.parts) - 1
    content = content_part(kind, value) if kind != "call" else None
    return _item(request, answer, number, kind, value, "incomplete" if cut else "completed", content)


def _item(
    request: ResponseRequest,
    answer: Answer,
    number: int,
    kind: str,
    value: Any,
    status: str,
    content: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """An item; `content` is None in one that has none yet, and in a call."""
    begin = {"id": _item_id(answer, number, kind), "type": TYPES[kind], "status": status}
    parts = [] if content is None else [content]
    if kind == "thinking":
        return {**begin, "summary": [], "content": parts}
    if kind == "text":
        return {**begin, "role": "assistant", "content": parts}
    arguments = "" if status == "in_progress" else openai.arguments(value)
    named = {"name": value.name}
    if value.name in request.namespaces:
        named["namespace"] = request.namespaces[value.name]
    return {**begin, "call_id": value.id, **named, "arguments": arguments}


TYPES = {"thinking": "reasoning", "text": "message", "call": "function_call"}
PREFIXES = {"thinking": "rs", "text": "msg", "call": "fc"}


def _item_id(answer: Answer, number: int, kind: str) -> str:
    return f"{PREFIXES[kind]}_{answer.id}_{number}"


def content_part(kind: str, text: str) -> dict[str, Any]:
    """The content of an item of thinking or text."""
    if kind == "thinking":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseStream(PartStream):
    """The events of a response, numbered from 0."""

    def __init__(self, request: ResponseRequest, answer: Answer) -> None:
        super().__init__(request, answer)
        self.sent = 0
        self.created: dict[str, Any] = {}

    def start(self) -> Iterator[Event]:
        self.created = respond(self.request, self.answer)
        yield self._event("response.created", response=self.created)
        yield self._event("response.in_progress", response=self.created)

    def begin(self, kind: str, value: Any) -> Iterator[Event]:
        number = self.parts - 1
        item = _item(self.request, self.answer, number, kind, value, "in_progress", None)
        yield self._event("response.output_item.added", output_index=number, item=item)
        if kind != "call":
            part = content_part(kind, "")
            yield self._of_item("response.content_part.added", kind, content_index=0, part=part)

    def grow(self, kind: str, value: Any) -> Iterator[Event]:
        if kind == "call":
            arguments = openai.arguments(value)
            yield self._of_item("response.function_call_arguments.delta", kind, delta=arguments)
            return
        more: dict[str, Any] = {"logprobs": []} if kind == "text" else {}
        yield self._of_item(f"response.{DELTAS[kind]}.delta", kind, content_index=0, delta=value, **more)

    def complete(self, kind: str, number: int) -> Iterator[Event]:
        item = item_of(self.request, self.answer, number)
        if kind == "call":
            done = {name: item[name] for name in ("name", "arguments")}
            yield self._of_item("response.function_call_arguments.done", kind, **done)
        else:
            (part,) = item["content"]
            done = {name: part[name] for name in ("text", "logprobs") if name in part}
            yield self._of_item(f"response.{DELTAS[kind]}.done", kind, content_index=0, **done)
            yield self._of_item("response.content_part.done", kind, content_index=0, part=part)
        yield self._event("response.output_item.done", output_index=number, item=item)

    def end(self) -> Iterator[Event]:
        yield from self.close()
        response = respond(self.request, self.answer)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: RequestError) -> Iterator[Event]:
        if not self.created:
            yield self._event("error", message=str(error), code=error.code, param=error.param)
            return
        problem = {"code": "server_error", "message": str(error)}
        yield self._event("response.failed", response={**self.created, "status": "failed", "error": problem})

    def _of_item(self, event: str, kind: str, **values: Any) -> Event:
        number = self.parts - 1
        return self._event(event, item_id=_item_id(self.answer, number, kind), output_index=number, **values)

    def _event(self, event: str, **values: Any) -> Event:
        self.sent += 1
        return event, {"type": event, "sequence_number": self.sent - 1, **values}


DELTAS = {"thinking": "reasoning_text", "text": "output_text"}

ENDPOINT = Endpoint(
    path="/v1/responses",
    about="Answer a conversation of items: messages, reasoning, calls and their outputs.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=RESPONSE,
    stream=ResponseStream,
    error=openai.error,
)
