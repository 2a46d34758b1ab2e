"""What the endpoints of OpenAI's interface share: fields, errors, numbers of tokens, tool calls, log-probabilities.

Source: OpenAI's API reference, https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.generation.loop.step import ToolCall
from zoo_serve.endpoint import Event
from zoo_serve.fields import FLAG, OBJECT, TEXT, TOKENS, WHOLE, Field, Schema, object_of
from zoo_serve.requests import Answer, GenerationRequest, RequestError, Token, Usage

DONE: Event = (None, "[DONE]")
MOST_CHOICES = 16
MOST_ALTERNATIVES = 20
MOST_STOPS = 256
UNSET = ((-1, None),)  # as programs for llama.cpp and vLLM write a field that is left out
TINY = 1e-9  # a nucleus of one token

MODEL = Field(TEXT, about="A name of GET /v1/models; without one, the first model.")
STREAM = {
    "stream": Field(FLAG, about="Send the answer as server-sent events."),
    "stream_options": Field(
        object_of({}, {"include_usage": FLAG, "include_obfuscation": FLAG, "continuous_usage_stats": FLAG}),
        about="`include_usage`: the last event has the numbers of tokens; `continuous_usage_stats`: so has each.",
    ),
}
SETTINGS = {
    "max_tokens": Field({**WHOLE, "minimum": 1}, setting="max_tokens", instead=UNSET),
    "temperature": Field({"type": "number", "minimum": 0}, setting="temperature"),
    "top_p": Field(
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        setting="top_p",
        instead=((0, TINY), (0.0, TINY)),
    ),
    "seed": Field({**WHOLE, "minimum": 0, "maximum": 2**63 - 1}, setting="seed", instead=UNSET),
    "stop": Field(
        {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": MOST_STOPS}]}, setting="stop"
    ),
    "logit_bias": Field(OBJECT, setting="logit_bias"),
    # Names of other servers of open models:
    "top_k": Field({**WHOLE, "minimum": 0, "maximum": 2**63 - 1}, setting="top_k", instead=UNSET),
    "repeat_penalty": Field({"type": "number", "exclusiveMinimum": 0}, setting="repetition_penalty"),
    "guided_json": Field({"anyOf": [OBJECT, TEXT]}, setting="json_schema"),
    "guided_regex": Field(TEXT, setting="regex"),
    "guided_grammar": Field(TEXT, setting="grammar"),
    "ignore_eos": Field(
        FLAG,
        about="True: no end token comes before `max_tokens`, which is then needed; `stop` still ends the text.",
    ),
    "skip_special_tokens": Field(FLAG, only=(True,), about="The text of an answer has no special tokens."),
    "spaces_between_special_tokens": Field(FLAG, ignored="the text has no special tokens"),
    "cache_prompt": Field(FLAG, ignored="the prompt cache changes no answer"),
    "keep_alive": Field(
        {"anyOf": [TEXT, {"type": "number"}]}, ignored="--unload-after says how long a model stays loaded"
    ),
}
IGNORED = {
    "user": Field(TEXT, ignored="no user is told from another"),
    "safety_identifier": Field(TEXT, ignored="no user is told from another"),
    "metadata": Field(OBJECT, ignored="nothing is stored"),
    "prompt_cache_key": Field(TEXT, ignored="all requests share one prompt cache"),
    "prompt_cache_retention": Field(TEXT, ignored="the prompt cache drops what was used least recently"),
    "service_tier": Field(TEXT, ignored="there is one tier"),
    "store": Field(FLAG, only=(False,), about="Nothing is stored."),
}
CHAT = {
    "parallel_tool_calls": Field(
        FLAG, about="False: an answer has at most one call of a tool, and ends after it."
    ),
    "chat_template_kwargs": Field(
        {**OBJECT, "properties": {"messages": {"type": "null"}, "tools": {"type": "null"}}},
        about="Variables of the chat template, `enable_thinking` for example.",
    ),
    "enable_thinking": Field(FLAG, variable="enable_thinking", about="A variable of the chat template."),
    "continue_final_message": Field(
        FLAG,
        variable="continue_final_message",
        about="True: the answer goes on with the text of the last message, an assistant's.",
    ),
    "strategy": Field(TEXT, about="Generation strategy."),
}
# Settings whose results a conversation's answer has no place for; /v1/completions has `echo` and `candidates`.
NOT_IN_CHAT = ("prompt_logprobs", "return_sequences")
# A text, token ids, or several of either.
PROMPTS: Schema = {
    "anyOf": [TEXT, TOKENS, {"type": "array", "items": {"anyOf": [TEXT, TOKENS]}, "minItems": 1}]
}
COUNT = Field({**WHOLE, "minimum": 1, "maximum": MOST_CHOICES}, about="Number of answers.")


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITY: Schema = {"enum": ["low", "medium", "high"]}


def effort_variables(effort: str | None) -> dict[str, Any]:
    """The chat template's variables of a reasoning effort."""
    if effort is None:
        return {}
    return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}


def end_settings(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `ignore_eos`: as many tokens as are asked for at most."""
    if not values.get("ignore_eos"):
        return {}
    if "max_tokens" not in settings:
        raise RequestError(400, "`ignore_eos` needs `max_tokens`", param="ignore_eos")
    return {"min_tokens": settings["max_tokens"]}


def usage_of_stream(values: Mapping[str, Any]) -> dict[str, Any]:
    """Which chunks of a stream have the numbers of tokens, as fields of the request."""
    options = values.get("stream_options", {})
    each = bool(options.get("continuous_usage_stats"))
    return {"stream_usage": bool(options.get("include_usage")), "usage_in_each": each}


def allowed_tools(
    tools: Sequence[Mapping[str, Any]], choice: Mapping[str, Any]
) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Of tools, those that a choice `{"mode", "tools"}` allows, and its mode; RequestError for one that is not among them."""
    names = [(one.get("function") or one)["name"] for one in choice["tools"]]
    known = {tool["function"]["name"]: tool for tool in tools}
    for name in names:
        if name not in known:
            raise RequestError(400, f"`tool_choice`: there is no tool {name!r:.60}", param="tool_choice")
    return tuple(known[name] for name in dict.fromkeys(names)), choice["mode"]


def prompts_of(values: Mapping[str, Any], name: str, most: int) -> tuple[str | tuple[int, ...], ...]:
    """The prompts of a field with `PROMPTS`, at most so many."""
    value = values[name]
    several = isinstance(value, list) and not isinstance(value[0], int)
    if several and len(value) > most:
        raise RequestError(400, f"`{name}` must be at most {most} texts, got {len(value)}", param=name)
    return tuple(one if isinstance(one, str) else tuple(one) for one in (value if several else [value]))


def error(problem: RequestError) -> Mapping[str, Any]:
    """An error in OpenAI's form."""
    kind = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}.get(
        problem.status, "invalid_request_error" if problem.status < 500 else "server_error"
    )
    inner = {"message": str(problem), "type": kind, "param": problem.param, "code": problem.code}
    return {"error": inner}


def format_settings(
    asked: Mapping[str, Any] | None, settings: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The settings of a format, which the field `where` asks for beside other settings."""
    if asked is None or asked["type"] == "text":
        return {}
    param = where.partition(".")[0]
    if "json_schema" in settings:
        raise RequestError(400, f"`{where}` and `json_schema` cannot be given together", param=param)
    if asked["type"] == "json_object":
        return {"json_schema": asked.get("schema") or {"type": "object"}}
    return {"json_schema": asked["json_schema"]["schema"]}


def usage(counts: Usage) -> dict[str, Any]:
    """The numbers of tokens of an answer."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.thinking},
    }


def usage_so_far(request: GenerationRequest, answer: Answer) -> dict[str, Any]:
    """The field of a chunk with the numbers of tokens so far, where each is to have it."""
    return {"usage": usage(answer.usage)} if request.usage_in_each else {}


USAGE: Schema = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": WHOLE,
        "completion_tokens": WHOLE,
        "total_tokens": WHOLE,
        "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": WHOLE}},
        "completion_tokens_details": {"type": "object", "properties": {"reasoning_tokens": WHOLE}},
    },
}


def response(kind: str, part: str, value: Schema, reasons: Sequence[str]) -> Schema:
    """The JSON schema of a response whose `object` is `kind`.

    Each choice has a field `part` with the schema `value`, and one of the finish reasons `reasons`.
    """
    choice: dict[str, Schema] = {
        "index": WHOLE,
        part: value,
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": [*reasons]},
    }
    answer: dict[str, Schema] = {
        "id": TEXT,
        "object": {"enum": [kind]},
        "created": WHOLE,
        "model": TEXT,
        "choices": {
            "type": "array",
            "items": {"type": "object", "required": ["index", part, "finish_reason"], "properties": choice},
        },
        "usage": USAGE,
    }
    return {"type": "object", "required": [*answer], "properties": answer}


def calls(made: Iterable[ToolCall], first: int | None = None) -> list[dict[str, Any]]:
    """Tool calls, their arguments as JSON text. With `first`, as parts of a stream, the number of the first of them."""
    parts = []
    for number, call in enumerate(made):
        function = {"name": call.name, "arguments": arguments(call)}
        place = {} if first is None else {"index": first + number}
        parts.append({**place, "id": call.id, "type": "function", "function": function})
    return parts


def arguments(call: ToolCall) -> str:
    """The arguments of a tool call as JSON text."""
    return json.dumps(call.arguments, ensure_ascii=False)


def token(one: Token) -> dict[str, Any]:
    """A token with its log-probability, as chat has it."""
    return {
        "token": one.text,
        "logprob": one.logprob,
        "bytes": None if one.bytes is None else list(one.bytes),
    }


def head(answer: Answer, prefix: str, kind: str) -> dict[str, Any]:
    """The fields that every response and every chunk begins with."""
    return {"id": f"{prefix}-{answer.id}", "object": kind, "created": answer.created, "model": answer.model}


def seeded(settings: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The settings of the answer of this number: each has a seed of its own, the first the one that was given."""
    given = settings.get("seed")
    return dict(settings) if given is None else {**settings, "seed": (given + number) % 2**63}
