"""`/v1/chat/completions`: OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.frozen import frozen
from zoo.tokenizer.chat_messages import THINKING
from zoo_serve.endpoint import Endpoint, Event
from zoo_serve.fields import (
    FLAG,
    LIST,
    OBJECT,
    TEXT,
    WHOLE,
    Field,
    Fields,
    Schema,
    object_of,
    open_object_of,
    or_null,
    tagged,
)
from zoo_serve.protocols import legacy_functions, openai
from zoo_serve.requests import Answer, Choice, Delta, GenerationRequest, RequestError, TokenLogprobs

CACHED = {"cache_control": OBJECT}  # the prompt cache needs no marks
PART = tagged("text", {"text": TEXT}, {**CACHED, "annotations": LIST})
# Programs send answers back with keys of their own. The chat template gets these, and may read them.
CALL = open_object_of(
    {"function": open_object_of({"name": TEXT}, {"arguments": {"anyOf": [TEXT, OBJECT]}})},
    {"id": TEXT, "type": {"enum": ["function"]}, "index": WHOLE},
)
LEFT_OUT = ("refusal", "annotations")  # of an answer that a client sends back
MESSAGE = open_object_of(
    {"role": {"enum": ["system", "developer", "user", "assistant", "tool", "function"]}},
    {
        "content": {"anyOf": [TEXT, {**LIST, "items": {"anyOf": [PART]}}]},
        "name": TEXT,
        "tool_calls": {**LIST, "items": CALL},
        "tool_call_id": TEXT,
        **dict.fromkeys(THINKING, TEXT),
        "refusal": TEXT,
        "annotations": LIST,
        "audio": {"type": "null"},
        "function_call": legacy_functions.CALL,
    },
)
TOOL = tagged(
    "function",
    {"function": object_of({"name": TEXT}, {"description": TEXT, "parameters": OBJECT, "strict": FLAG})},
    CACHED,
)
NAMED = tagged("function", {"function": object_of({"name": TEXT})})
ALLOWED = tagged(
    "allowed_tools",
    {
        "allowed_tools": object_of(
            {"mode": {"enum": ["auto", "required"]}, "tools": {**LIST, "items": NAMED, "minItems": 1}}
        )
    },
)
FORMAT: Schema = {
    "anyOf": [
        tagged("text", {}),
        tagged("json_object", {}, {"schema": OBJECT}),
        tagged(
            "json_schema",
            {
                "json_schema": object_of(
                    {"schema": OBJECT}, {"name": TEXT, "description": TEXT, "strict": FLAG}
                )
            },
        ),
    ]
}
ANSWER = object_of(
    {"role": {"enum": ["assistant"]}, "content": or_null(TEXT), "refusal": {"type": "null"}},
    {
        "reasoning_content": TEXT,
        "tool_calls": {**LIST, "items": CALL},
        "function_call": legacy_functions.CALL,
    },
)

FIELDS = Fields(
    {
        "model": openai.MODEL,
        "messages": Field({"type": "array", "items": MESSAGE, "minItems": 1}),
        "n": openai.COUNT,
        **openai.STREAM,
        **openai.SETTINGS,
        "max_completion_tokens": Field({**WHOLE, "minimum": 1}, setting="max_tokens"),
        "logprobs": Field(FLAG, about="Return the log-probability of each token."),
        "top_logprobs": Field({**WHOLE, "minimum": 0, "maximum": openai.MOST_ALTERNATIVES}),
        "response_format": Field(
            FORMAT, about="Text, any JSON object or one that matches `schema`, or JSON that matches a schema."
        ),
        "tools": Field({**LIST, "items": {"anyOf": [TOOL]}}),
        "tool_choice": Field({"anyOf": [{"enum": ["none", "auto", "required"]}, NAMED, ALLOWED]}),
        **legacy_functions.FIELDS,
        "reasoning_effort": Field(
            {"enum": list(openai.EFFORTS)},
            about='The chat template\'s variable; with "none", `enable_thinking` is false.',
        ),
        "verbosity": Field(openai.VERBOSITY, variable="verbosity", about="A variable of the chat template."),
        **openai.CHAT,
        "modalities": Field({"type": "array", "items": {"enum": ["text"]}}, ignored="every answer is text"),
        **openai.IGNORED,
    },
    required=("messages",),
    settings=True,
    without=openai.NOT_IN_CHAT,
)


@frozen(kw_only=True)
class ChatRequest(GenerationRequest):
    """A request for text; `older`: its tools are functions, and so is the call of its answer."""

    older: bool = False


def parse(body: Mapping[str, Any]) -> ChatRequest:
    """Parse the body of a request."""
    values, settings = FIELDS.checked(body)
    if values.get("top_logprobs") and not values.get("logprobs"):
        raise RequestError(400, "`top_logprobs` needs `logprobs`", param="top_logprobs")
    if values.get("logprobs"):
        settings["logprobs"] = values.get("top_logprobs") or True
    settings |= openai.format_settings(values.get("response_format"), settings, "response_format")
    settings |= openai.end_settings(values, settings)
    older, values = bool({*legacy_functions.FIELDS} & {*values}), legacy_functions.newer_form(values)
    tools, choice = tuple(values.get("tools", ())), values.get("tool_choice", "auto")
    if not isinstance(choice, str) and choice["type"] == "allowed_tools":
        tools, choice = openai.allowed_tools(tools, choice["allowed_tools"])
    return ChatRequest(
        older=older,
        model=values.get("model"),
        messages=messages_of(values),
        tools=tools,
        tool_choice=choice,
        parallel_calls=values.get("parallel_tool_calls", True),
        variables={
            **openai.effort_variables(values.get("reasoning_effort")),
            **values.get("chat_template_kwargs", {}),
        },
        settings=settings,
        strategy=values.get("strategy"),
        count=values.get("n", 1),
        stream=values.get("stream", False),
        **openai.usage_of_stream(values),
    )


def messages_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The messages as `zoo.chat` takes them."""
    return tuple(legacy_functions.newer_messages(map(_message, values["messages"])))


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as `zoo.chat` takes it: "developer" is the newer name of "system"."""
    given = {key: value for key, value in message.items() if key not in LEFT_OUT and value is not None}
    return {**given, "role": "system"} if given["role"] == "developer" else given


def respond(request: ChatRequest, answer: Answer) -> dict[str, Any]:
    """The response of a finished answer."""
    choices = [
        {
            "index": number,
            "message": _in_form(request, _answer_message(choice)),
            "logprobs": _logprobs(choice.tokens, request),
            "finish_reason": _reason(request, choice.finish_reason),
        }
        for number, choice in enumerate(answer.choices)
    ]
    begin = openai.head(answer, "chatcmpl", "chat.completion")
    return {**begin, "choices": choices, "usage": openai.usage(answer.usage)}


def _in_form(request: ChatRequest, part: dict[str, Any]) -> dict[str, Any]:
    return legacy_functions.older_form(part) if request.older else part


def _reason(request: ChatRequest, reason: str | None) -> str | None:
    return legacy_functions.older_reason(reason) if request.older else reason


def _answer_message(choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.thinking:
        message["reasoning_content"] = choice.thinking
    if choice.calls:
        message |= {"content": choice.text or None, "tool_calls": openai.calls(choice.calls)}
    return message


def _logprobs(tokens: Sequence[TokenLogprobs], request: GenerationRequest) -> dict[str, Any] | None:
    if not request.settings.get("logprobs"):
        return None
    content = [
        {**openai.token(step.token), "top_logprobs": [openai.token(other) for other in step.alternatives]}
        for step in tokens
    ]
    return {"content": content, "refusal": None}


class ChatStream:
    """The chunks of a chat answer."""

    def __init__(self, request: ChatRequest, answer: Answer) -> None:
        self.request, self.answer = request, answer
        self.calls = [0] * len(answer.choices)  # sent so far

    def start(self) -> Iterator[Event]:
        for index in range(len(self.answer.choices)):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def add(self, delta: Delta) -> Iterator[Event]:
        part: dict[str, Any] = {}
        if delta.text:
            part["content"] = delta.text
        if delta.thinking:
            part["reasoning_content"] = delta.thinking
        if delta.calls:
            part["tool_calls"] = openai.calls(delta.calls, self.calls[delta.index])
            self.calls[delta.index] += len(delta.calls)
        if part or delta.tokens:
            yield self._chunk(delta.index, part, _logprobs(delta.tokens, self.request))
        if delta.finish_reason is not None:
            yield self._chunk(delta.index, {}, finish_reason=delta.finish_reason)

    def end(self) -> Iterator[Event]:
        if self.request.stream_usage:
            begin = openai.head(self.answer, "chatcmpl", "chat.completion.chunk")
            yield None, {**begin, "choices": [], "usage": openai.usage(self.answer.usage)}
        yield openai.DONE

    def failed(self, error: RequestError) -> Iterator[Event]:
        yield None, openai.error(error)

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        logprobs: Mapping[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> Event:
        choice: dict[str, Any] = {
            "index": index,
            "delta": _in_form(self.request, dict(delta)),
            "finish_reason": _reason(self.request, finish_reason),
        }
        if logprobs is not None:
            choice["logprobs"] = logprobs
        begin = openai.head(self.answer, "chatcmpl", "chat.completion.chunk")
        return None, {**begin, "choices": [choice], **openai.usage_so_far(self.request, self.answer)}


RESPONSE = openai.response(
    "chat.completion", "message", ANSWER, ("stop", "length", "tool_calls", "function_call")
)

ENDPOINT = Endpoint(
    path="/v1/chat/completions",
    about="Answer the last message of a conversation.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=RESPONSE,
    stream=ChatStream,
    error=openai.error,
)
