"""Answers, errors and lists of models in Ollama's form."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from zoo.describe.facts.fact import parameter_count
from zoo.generation.loop.step import ToolCall
from zoo_serve.endpoint import Event
from zoo_serve.protocols import openai
from zoo_serve.requests import (
    Answer,
    Delta,
    EmbeddingRequest,
    GenerationRequest,
    ModelRequest,
    RequestError,
    Times,
    TokenLogprobs,
)

VERSION = "0.13.0"  # of Ollama, whose interface this is: programs ask for a minimum


def error(problem: RequestError) -> Mapping[str, Any]:
    """An error in Ollama's form."""
    return {"error": str(problem)}


class LineStream:
    """The lines of an answer: what each step adds, and at the end the reason and the numbers."""

    def __init__(self, request: GenerationRequest, answer: Answer) -> None:
        self.request, self.answer = request, answer
        self.calls = 0  # sent so far

    def start(self) -> Iterator[Event]:
        return iter(())

    def add(self, delta: Delta) -> Iterator[Event]:
        if delta.text or delta.thinking or delta.calls or delta.tokens:
            calls = _calls(delta.calls, self.calls)
            self.calls += len(delta.calls)
            content = self.content(delta.text, delta.thinking, calls)
            yield None, {**_head(self.answer.model), **content, "done": False, **_logprobs(delta.tokens)}

    def end(self) -> Iterator[Event]:
        yield None, {**_head(self.answer.model), **self.content(), **_last(self.answer)}

    def failed(self, error: RequestError) -> Iterator[Event]:
        yield None, {"error": str(error)}

    @staticmethod
    def content(
        text: str = "", thinking: str = "", calls: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """A part of an answer, as `/api/chat` has it."""
        more = {"thinking": thinking, "tool_calls": calls}
        return {
            "message": {
                "role": "assistant",
                "content": text,
                **{name: value for name, value in more.items() if value},
            }
        }


class GenerateStream(LineStream):
    """The lines of an answer of `/api/generate`."""

    @staticmethod
    def content(
        text: str = "", thinking: str = "", calls: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """A part of an answer, as `/api/generate` has it."""
        return {"response": text, **({"thinking": thinking} if thinking else {})}


def respond(request: Any, result: Any) -> dict[str, Any]:
    """The response of `/api/chat`: an answer, or a model that was loaded."""
    return _respond(request, result, LineStream)


def respond_generate(request: Any, result: Any) -> dict[str, Any]:
    """The response of `/api/generate`: an answer, or a model that was loaded."""
    return _respond(request, result, GenerateStream)


def _respond(request: Any, result: Any, form: type[LineStream]) -> dict[str, Any]:
    if isinstance(request, ModelRequest):
        reason = "unload" if request.keep_alive == 0 else "load"
        return {**_head(result[0]), **form.content(), "done": True, "done_reason": reason}
    choice = result.choices[0]
    content = form.content(choice.text, choice.thinking, _calls(choice.calls))
    return {**_head(result.model), **content, **_last(result), **_logprobs(choice.tokens)}


def _head(model: str) -> dict[str, Any]:
    return {"model": model, "created_at": moment(time.time())}


def moment(seconds: float) -> str:
    """A moment, in seconds since 1970, as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _last(answer: Answer) -> dict[str, Any]:
    """Why an answer ended, and its numbers: durations in nanoseconds, of a prompt from when its model was loaded."""
    times, now = answer.times, time.monotonic()
    first = now if times.first_token is None else times.first_token
    return {
        "done": True,
        "done_reason": "length" if answer.choices[0].finish_reason == "length" else "stop",
        "total_duration": _nanoseconds(now - times.asked),
        "load_duration": _nanoseconds(times.loaded - times.asked),
        "prompt_eval_count": answer.usage.prompt,
        "prompt_eval_duration": _nanoseconds(first - times.loaded),
        "eval_count": answer.usage.completion,
        "eval_duration": _nanoseconds((times.last_token or first) - first),
    }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _calls(calls: Any, first: int = 0) -> list[dict[str, Any]]:
    return [_call(call, first + number) for number, call in enumerate(calls)]


def _call(call: ToolCall, number: int) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": number, "name": call.name, "arguments": call.arguments}}


def _logprobs(tokens: Any) -> dict[str, Any]:
    def entry(step: TokenLogprobs) -> dict[str, Any]:
        return {
            **openai.token(step.token),
            "top_logprobs": [openai.token(other) for other in step.alternatives],
        }

    return {"logprobs": [entry(step) for step in tokens]} if tokens else {}


def respond_embed(request: EmbeddingRequest, result: tuple[str, Any, int, Times]) -> dict[str, Any]:
    """The response to `/api/embed`: the vectors, each scaled to length 1, as Ollama's are."""
    model, vectors, tokens, times = result
    lengths = [math.hypot(*vector) or 1.0 for vector in vectors]
    return {
        "model": model,
        "embeddings": [
            [number / length for number in vector] for vector, length in zip(vectors, lengths, strict=True)
        ],
        "total_duration": _nanoseconds(time.monotonic() - times.asked),
        "load_duration": _nanoseconds(times.loaded - times.asked),
        "prompt_eval_count": tokens,
    }


def respond_show(request: ModelRequest, result: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of a model."""
    _, about = result
    architecture = about.get("architecture", "")
    numbers = {"general.parameter_count": "parameters", f"{architecture}.context_length": "context"}
    known = {key: about[name] for key, name in numbers.items() if about.get(name) is not None}
    return {
        "details": details(about),
        "model_info": {"general.architecture": architecture, **known},
        "capabilities": capabilities(about),
    }


def capabilities(about: Mapping[str, Any]) -> list[str]:
    """What a model can do, in Ollama's words."""
    if about.get("task", "generate") in ("generate", "translate", "denoise"):
        return ["completion", *(name for name in ("tools", "thinking") if about.get(name))]
    return ["embedding"]


def details(about: Mapping[str, Any]) -> dict[str, Any]:
    """What lists of models say of one."""
    family, parameters = about.get("architecture", ""), about.get("parameters")
    size = {} if parameters is None else {"parameter_size": parameter_count(parameters).replace(" ", "")}
    format = about.get("format", "")
    return {"parent_model": "", "format": format, "family": family, "families": [family], **size}


def listed(name: str, about: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A model as `/api/tags` and `/api/ps` list it. The digest is of what is known of the model, not of its weights."""
    digest = hashlib.sha256(json.dumps([name, about], sort_keys=True).encode()).hexdigest()
    return {"name": name, "model": name, "digest": digest, "details": details(about), **more}
