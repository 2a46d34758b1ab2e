"""`/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages.

Source: Anthropic's API reference, https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.frozen import frozen
from zoo_serve.endpoint import Endpoint, Event
from zoo_serve.fields import WHOLE, object_of
from zoo_serve.protocols import openai
from zoo_serve.protocols.anthropic_fields import COUNT_FIELDS, FIELDS, RESPONSE
from zoo_serve.protocols.conversation import (
    Message,
    PartStream,
    call_of,
    content_of,
    function_tool,
    named_tool,
)
from zoo_serve.requests import Answer, GenerationRequest, RequestError, TokenizeRequest

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    503: "overloaded_error",
}


def error(problem: RequestError) -> Mapping[str, Any]:
    """An error in Anthropic's form."""
    kind = KINDS.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    message = str(problem)
    if problem.length is not None:  # the words by which programs know it
        tokens, context = problem.length
        message = f"prompt is too long: {tokens} tokens > {context} maximum"
    return {"type": "error", "error": {"type": kind, "message": message}}


BILLING = "x-anthropic-billing-header:"  # begins a block of Claude Code's, no text for the model


@frozen(kw_only=True)
class MessageRequest(GenerationRequest):
    """A request for text; with `hides_thinking`, the blocks of its thinking are empty."""

    hides_thinking: bool = False


def parse(body: Mapping[str, Any]) -> MessageRequest:
    """Parse the body of a request."""
    values, settings = FIELDS.checked(body)
    format = values.get("output_config", {}).get("format")
    if format is not None:
        format = {"type": "json_schema", "json_schema": format}
    settings |= openai.format_settings(format, settings, "output_config.format")
    choice = values.get("tool_choice", {"type": "auto"})
    return MessageRequest(
        hides_thinking=values.get("thinking", {}).get("display") == "omitted",
        model=values.get("model"),
        messages=tuple(messages_of(values)),
        tools=tools_of(values),
        tool_choice=_tool_choice(choice),
        parallel_calls=not choice.get("disable_parallel_tool_use"),
        variables=variables_of(values),
        settings=settings,
        strategy=values.get("strategy"),
        stream=values.get("stream", False),
    )


def parse_count(body: Mapping[str, Any]) -> TokenizeRequest:
    """The request for the number of a conversation's tokens."""
    values, _ = COUNT_FIELDS.checked(body)
    return TokenizeRequest(
        model=values.get("model"),
        messages=tuple(messages_of(values)),
        tools=tools_of(values),
        variables=variables_of(values),
    )


def _tool_choice(choice: Mapping[str, Any]) -> Any:
    if choice["type"] == "tool":
        return named_tool(choice["name"])
    return "required" if choice["type"] == "any" else choice["type"]


def tools_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The tools in the form of OpenAI's chat."""
    return tuple(
        function_tool(tool["name"], tool.get("description"), tool["input_schema"])
        for tool in values.get("tools", ())
    )


def variables_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The chat template's variables."""
    variables: dict[str, Any] = {}
    if "thinking" in values:
        variables["enable_thinking"] = values["thinking"]["type"] != "disabled"
    effort = values.get("output_config", {}).get("effort")
    if effort is not None:
        variables["reasoning_effort"] = effort
    if values["messages"][-1]["role"] == "assistant":
        variables["continue_final_message"] = True
    return {**variables, **values.get("chat_template_kwargs", {})}


def messages_of(values: Mapping[str, Any]) -> list[Message]:
    """The messages in the form of OpenAI's chat: results of tools are messages of their own."""
    messages: list[Message] = []
    system = values.get("system") or ()
    if not isinstance(system, str):  # what changes between two requests would defeat the prompt cache
        system = [block for block in system if not block["text"].startswith(BILLING)]
    if system:
        messages.append({"role": "system", "content": _content(system)})
    names: dict[str, str] = {}
    for number, message in enumerate(values["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            names |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
            messages.append(_answer(blocks, f"messages[{number}]"))
            continue
        texts = [block for block in blocks if block["type"] == "text"]
        messages += [
            _result(block, names, f"messages[{number}].content[{at}]")
            for at, block in enumerate(blocks)
            if block["type"] == "tool_result"
        ]
        if texts:
            messages.append({"role": message["role"], "content": content_of(texts)})
    return messages


def _content(content: Any) -> Any:
    return content if isinstance(content, str) else content_of(content)


def _answer(blocks: Any, where: str) -> Message:
    """The message of an answer's blocks."""
    texts = [block for block in blocks if block["type"] == "text"]
    thinking = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    calls = [
        call_of(block["id"], block["name"], block["input"], where)
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return {
        "role": "assistant",
        **({"reasoning_content": "\n".join(thinking)} if thinking else {}),
        "content": content_of(texts) if texts else "",
        **({"tool_calls": calls} if calls else {}),
    }


def _result(block: Mapping[str, Any], names: Mapping[str, str], where: str) -> Message:
    """The message of a tool's result. Templates know no errors, so the text of one says that it is."""
    id = block["tool_use_id"]
    if id not in names:
        raise RequestError(
            400, f"`{where}.tool_use_id`: no message before it has a tool_use {id!r:.60}", param="messages"
        )
    content = block.get("content")
    content = "" if not content else _content(content)
    if block.get("is_error"):
        content = (
            f"Error: {content}"
            if isinstance(content, str)
            else [{"type": "text", "text": "Error:"}, *content]
        )
    return {"role": "tool", "tool_call_id": id, "name": names[id], "content": content}


def respond(request: MessageRequest, answer: Answer) -> dict[str, Any]:
    """The response of an answer that is finished, or, before its first part, of one that is not."""
    choice = answer.choices[0]
    reason, stop = stop_of(answer)
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [
            block_of(kind, "" if kind == "thinking" and request.hides_thinking else value)
            for kind, value in choice.parts
        ],
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": usage(answer),
    }


def block_of(kind: str, value: Any) -> dict[str, Any]:
    """The content block of a part. Thinking is not signed."""
    if kind == "thinking":
        return {"type": "thinking", "thinking": value, "signature": ""}
    if kind == "text":
        return {"type": "text", "text": value}
    return {"type": "tool_use", "id": value.id, "name": value.name, "input": value.arguments}


def stop_of(answer: Answer) -> tuple[str | None, str | None]:
    """Why an answer ended, and the stop sequence where one ended it."""
    choice = answer.choices[0]
    if choice.finish_reason == "stop" and choice.stop is not None:
        return "stop_sequence", choice.stop
    reasons = {None: None, "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
    return reasons[choice.finish_reason], None


def usage(answer: Answer) -> dict[str, Any]:
    """The numbers of tokens so far; the prompt's without those that the prompt cache held."""
    counts = answer.usage
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_read_input_tokens": counts.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": counts.completion,
        "output_tokens_details": {"thinking_tokens": counts.thinking},
    }


class MessageStream(PartStream):
    """The events of a message."""

    def start(self) -> Iterator[Event]:
        yield _event("message_start", message=respond(self.request, self.answer))
        yield _event("ping")

    def begin(self, kind: str, value: Any) -> Iterator[Event]:
        block = block_of(kind, "") if kind != "call" else {**block_of(kind, value), "input": {}}
        yield _event("content_block_start", index=self.parts - 1, content_block=block)

    def grow(self, kind: str, value: Any) -> Iterator[Event]:
        if kind == "call":
            yield self._delta("input_json_delta", partial_json=openai.arguments(value))
        elif not (kind == "thinking" and self.request.hides_thinking):
            yield self._delta(f"{kind}_delta", **{kind: value})

    def complete(self, kind: str, number: int) -> Iterator[Event]:
        if kind == "thinking":
            yield self._delta("signature_delta", signature="")
        yield _event("content_block_stop", index=number)

    def end(self) -> Iterator[Event]:
        yield from self.close()
        reason, stop = stop_of(self.answer)
        ended = {"stop_reason": reason, "stop_sequence": stop}
        yield _event("message_delta", delta=ended, usage=usage(self.answer))
        yield _event("message_stop")

    def failed(self, problem: RequestError) -> Iterator[Event]:
        yield "error", error(problem)

    def _delta(self, kind: str, **values: Any) -> Event:
        return _event("content_block_delta", index=self.parts - 1, delta={"type": kind, **values})


def _event(kind: str, **values: Any) -> Event:
    return kind, {"type": kind, **values}


ENDPOINT = Endpoint(
    path="/v1/messages",
    about="Answer the last message of a conversation.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=RESPONSE,
    stream=MessageStream,
    error=error,
)
COUNT_TOKENS = Endpoint(
    path="/v1/messages/count_tokens",
    about="Count the tokens of a conversation.",
    fields=COUNT_FIELDS,
    parse=parse_count,
    respond=lambda request, result: {"input_tokens": len(result[1])},
    response=object_of({"input_tokens": WHOLE}),
    error=error,
)
