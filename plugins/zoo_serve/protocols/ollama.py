"""Ollama's interface: `/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`, `/api/show`.

Source: Ollama's API reference, https://docs.ollama.com/api.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import object_of
from zoo_serve.protocols import ollama_answers as answers
from zoo_serve.protocols import ollama_fields as fields
from zoo_serve.protocols import openai
from zoo_serve.protocols.conversation import Message, call_of
from zoo_serve.requests import EmbeddingRequest, GenerationRequest, ModelRequest, RequestError

LONGEST = 10**8  # seconds; a longer `keep_alive` is for ever
SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
UNMANAGED = ("pull", "push", "create", "copy", "delete", "blobs")  # paths below /api that change models


def unmanaged(action: str) -> RequestError:
    """Return the error for a path that would change the models, such as /api/pull."""
    return RequestError(
        400, f"/api/{action}: this server manages no models; `zoo serve NAME` downloads and offers one"
    )


def seconds_of(keep_alive: float | str | None) -> float | None:
    """The seconds of a number or of a text such as "1h30m", below 0 for ever; RequestError, 400, for another text."""
    if isinstance(keep_alive, str):
        text = keep_alive.strip()
        parts = DURATION.findall(text.lstrip("+-"))
        if re.fullmatch(r"[+-]?\d+", text):
            seconds = float(text)
        elif parts and "".join(number + unit for number, unit in parts) == text.lstrip("+-"):
            seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
            seconds = -seconds if text.startswith("-") else seconds
        else:
            raise RequestError(
                400,
                f'`keep_alive` must be seconds, or a duration such as "5m", got {keep_alive!r:.60}',
                param="keep_alive",
            )
    elif keep_alive is None:
        return None
    else:
        seconds = keep_alive
    return -1.0 if seconds < 0 or seconds > LONGEST else float(seconds)


def settings_of(values: Mapping[str, Any]) -> tuple[dict[str, Any], int | None]:
    """The settings of a request's `options` and other fields, and the context that it asks for."""
    options = {name: value for name, value in values.get("options", {}).items() if value is not None}
    try:
        own, settings = fields.OPTIONS.checked(options)
    except RequestError as error:  # its message begins with the option's name
        raise RequestError(400, f"`options.{str(error)[1:]}", param="options") from error
    most = own.get("num_predict", -1)
    if most == 0:
        raise RequestError(400, "`options.num_predict` must be at least 1, or -1", param="options")
    if most > 0:
        settings["max_tokens"] = most
    if own.get("seed", -1) >= 0:
        settings["seed"] = own["seed"]
    if "top_k" in own:
        settings["top_k"] = max(own["top_k"], 0)
    if "repetition_penalty" in settings and "repetition_context_size" not in settings:
        last = own.get("repeat_last_n", fields.REPEAT_LAST)
        settings |= {"repetition_context_size": last} if last > 0 else {}
        if last == 0:
            del settings["repetition_penalty"]
    format = values.get("format")
    if format:
        schema = {"type": "object"} if format == "json" else format
        asked = {"type": "json_schema", "json_schema": {"schema": schema}}
        settings |= openai.format_settings(asked, settings, "format")
    if "top_logprobs" in values and not values.get("logprobs"):
        raise RequestError(400, "`top_logprobs` needs `logprobs`", param="top_logprobs")
    if values.get("logprobs"):
        settings["logprobs"] = values.get("top_logprobs") or True
    return settings, own.get("num_ctx")


def parse(body: Mapping[str, Any]) -> GenerationRequest | ModelRequest:
    """Parse the body of a request to `/api/chat`."""
    values, _ = fields.CHAT_FIELDS.checked(body)
    if not values.get("messages"):
        return _load(values)
    return _generation(values, messages=messages_of(values["messages"]), tools=tuple(values.get("tools", ())))


def parse_generate(body: Mapping[str, Any]) -> GenerationRequest | ModelRequest:
    """Parse the body of a request to `/api/generate`."""
    values, _ = fields.GENERATE_FIELDS.checked(body)
    prompt, system = values.get("prompt"), values.get("system")
    _refuse_images(values, "images")
    if values.get("context"):
        raise RequestError(
            400,
            "`context`: answers are not stored as tokens; /api/chat takes a conversation",
            param="context",
        )
    if values.get("raw") and system:
        raise RequestError(400, "`system` changes nothing beside `raw`", param="system")
    if not prompt:
        return _load(values)
    if values.get("raw"):
        return _generation(values, prompts=(prompt,))
    messages: tuple[Message, ...] = ({"role": "user", "content": prompt},)
    if system:
        return _generation(values, messages=({"role": "system", "content": system}, *messages))
    # A model without a chat template continues the prompt.
    return _generation(values, messages=messages, prompts=(prompt,))


def _generation(values: Mapping[str, Any], **given: Any) -> GenerationRequest:
    settings, context = settings_of(values)
    variables: dict[str, Any] = {}
    if "think" in values:
        variables["enable_thinking"] = values["think"] is not False
        if isinstance(values["think"], str):
            variables["reasoning_effort"] = values["think"]
    if given.get("messages", ({},))[-1].get("role") == "assistant":
        variables["continue_final_message"] = True
    return GenerationRequest(
        model=values["model"],
        variables=variables,
        settings=settings,
        stream=values.get("stream", True),
        context=context,
        keep_alive=seconds_of(values.get("keep_alive")),
        **given,
    )


def _load(values: Mapping[str, Any]) -> ModelRequest:
    return ModelRequest(model=values["model"], load=True, keep_alive=seconds_of(values.get("keep_alive")))


def _refuse_images(values: Mapping[str, Any], where: str) -> None:
    if values.get("images"):
        raise RequestError(400, f"`{where}`: no model here reads images", param=where.partition("[")[0])


def messages_of(given: list[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages as `zoo.chat` takes them.

    Calls without an id get one. A tool's result answers the call of its id, else the first that is not answered of its
    name, or of any where it has none.
    """
    messages: list[Message] = []
    waiting: list[tuple[str, str]] = []  # ids and names of calls without a result
    for number, one in enumerate(given):
        where = f"messages[{number}]"
        _refuse_images(one, f"{where}.images")
        message: Message = {"role": one["role"], "content": one.get("content") or ""}
        if one.get("thinking"):
            message["reasoning_content"] = one["thinking"]
        if one.get("tool_calls"):
            message["tool_calls"] = [
                call_of(
                    call.get("id") or f"call_{number}_{at}",
                    call["function"]["name"],
                    call["function"].get("arguments") or {},
                    f"{where}.tool_calls[{at}].function.arguments",
                )
                for at, call in enumerate(one["tool_calls"])
            ]
            waiting = [(call["id"], call["function"]["name"]) for call in message["tool_calls"]]
        if one["role"] == "tool":
            id, name = one.get("tool_call_id"), one.get("tool_name") or one.get("name")
            asked = (id, 0) if id else (name, 1)
            answered = next((call for call in waiting if asked[0] in (call[asked[1]], None)), None)
            if answered is not None:
                waiting.remove(answered)
                id, name = answered
            message |= {key: value for key, value in (("tool_call_id", id), ("name", name)) if value}
        messages.append(message)
    return tuple(messages)


def parse_embed(body: Mapping[str, Any]) -> EmbeddingRequest:
    """Parse the body of a request to `/api/embed`."""
    values, _ = fields.EMBED_FIELDS.checked(body)
    texts = values["input"]
    return _embedding(values, (texts,) if isinstance(texts, str) else tuple(texts))


def parse_embeddings(body: Mapping[str, Any]) -> EmbeddingRequest:
    """Parse the body of a request to `/api/embeddings`."""
    values, _ = fields.EMBEDDINGS_FIELDS.checked(body)
    return _embedding(values, (values["prompt"],))


def _embedding(values: Mapping[str, Any], texts: tuple[str, ...]) -> EmbeddingRequest:
    _, context = settings_of(values)  # sampling changes no vector
    return EmbeddingRequest(
        model=values["model"],
        texts=texts,
        dimensions=values.get("dimensions"),
        truncate=values.get("truncate", True),
        context=context,
        keep_alive=seconds_of(values.get("keep_alive")),
    )


def parse_show(body: Mapping[str, Any]) -> ModelRequest:
    """Parse the body of a request to `/api/show`."""
    values, _ = fields.SHOW_FIELDS.checked(body)
    name = values.get("model", values.get("name"))
    if name is None:
        raise RequestError(400, "`model` is missing", param="model")
    return ModelRequest(model=name)


def _endpoint(path: str, about: str, **given: Any) -> Endpoint:
    return Endpoint(
        path=f"/api/{path}", about=about, error=answers.error, json_lines=True, any_type=True, **given
    )


ENDPOINTS = (
    _endpoint(
        "chat",
        "Answer the last message of a conversation, in Ollama's interface.",
        fields=fields.CHAT_FIELDS,
        parse=parse,
        respond=answers.respond,
        response=fields.CHAT_RESPONSE,
        stream=answers.LineStream,
    ),
    _endpoint(
        "generate",
        "Answer or continue a text, in Ollama's interface.",
        fields=fields.GENERATE_FIELDS,
        parse=parse_generate,
        respond=answers.respond_generate,
        response=fields.GENERATE_RESPONSE,
        stream=answers.GenerateStream,
    ),
    _endpoint(
        "embeddings",
        "Make a vector of one text, in Ollama's interface.",
        fields=fields.EMBEDDINGS_FIELDS,
        parse=parse_embeddings,
        respond=lambda request, result: {"embedding": result[1][0]},
        response=object_of({"embedding": fields.VECTOR}),
    ),
    _endpoint(
        "embed",
        "Make a vector of each text, in Ollama's interface.",
        fields=fields.EMBED_FIELDS,
        parse=parse_embed,
        respond=answers.respond_embed,
        response=fields.EMBED_RESPONSE,
    ),
    _endpoint(
        "show",
        "Say what is known of a model, in Ollama's interface.",
        fields=fields.SHOW_FIELDS,
        parse=parse_show,
        respond=answers.respond_show,
        response=fields.SHOW_RESPONSE,
    ),
)
