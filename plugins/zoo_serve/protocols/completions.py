"""`/v1/completions`: OpenAI's legacy Completions, which continue a text.

Models of other tasks answer here, too: a translation model with the translation of its prompt, an encoder with the likeliest
tokens for its masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo_serve.endpoint import Endpoint, Event
from zoo_serve.fields import FLAG, TEXT, WHOLE, Field, Fields
from zoo_serve.protocols import openai
from zoo_serve.requests import Answer, Choice, Delta, GenerationRequest, RequestError, TokenLogprobs

MOST_LOGPROBS = 20
MOST_PROMPTS = 64
FIELDS = Fields(
    {
        "model": openai.MODEL,
        "prompt": Field(openai.PROMPTS, about=f"A text, token ids, or up to {MOST_PROMPTS} of either."),
        "n": openai.COUNT,
        **openai.STREAM,
        **openai.SETTINGS,
        "echo": Field(
            FLAG,
            about="Repeat the prompt before the answer, with its log-probabilities if those are asked for.",
        ),
        "logprobs": Field({**WHOLE, "minimum": 0, "maximum": MOST_LOGPROBS}),
        "best_of": Field(WHOLE, only=(1,), about="The strategy best-of of the zoo's own settings does this."),
        "suffix": Field(TEXT, only=("",)),
        "strategy": Field(TEXT, about="Generation strategy."),
        **openai.IGNORED,
    },
    required=("prompt",),
    settings=True,
    without=("prompt_logprobs",),  # `echo` with `logprobs` returns them
)


def parse(body: Mapping[str, Any]) -> GenerationRequest:
    """Parse the body of a request."""
    values, settings = FIELDS.checked(body)
    settings |= openai.end_settings(values, settings)
    echo = values.get("echo", False)
    if "logprobs" in values:
        settings["logprobs"] = values["logprobs"] or True
        if echo:
            settings["prompt_logprobs"] = values["logprobs"] or True
    return GenerationRequest(
        model=values.get("model"),
        prompts=openai.prompts_of(values, "prompt", MOST_PROMPTS),
        settings=settings,
        strategy=values.get("strategy"),
        count=values.get("n", 1),
        stream=values.get("stream", False),
        **openai.usage_of_stream(values),
        echo=echo,
    )


def respond(request: GenerationRequest, answer: Answer) -> dict[str, Any]:
    """The response of a finished answer."""
    choices = [_choice(request, number, choice) for number, choice in enumerate(answer.choices)]
    begin = openai.head(answer, "cmpl", "text_completion")
    return {**begin, "choices": choices, "usage": openai.usage(answer.usage)}


def _choice(request: GenerationRequest, number: int, choice: Choice) -> dict[str, Any]:
    made = {
        "index": number,
        "text": choice.text,
        "logprobs": Logprobs(request).add(choice.tokens),
        "finish_reason": choice.finish_reason,
    }
    return {**made, "candidates": choice.candidates} if choice.candidates else made


class Logprobs:
    """The log-probabilities of one answer in the form of Completions, of parts that follow each other."""

    def __init__(self, request: GenerationRequest) -> None:
        self.asked, self.offset = bool(request.settings.get("logprobs")), 0

    def add(self, tokens: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        """Those of the next tokens; None where none were asked for."""
        if not self.asked:
            return None
        offsets = []
        for step in tokens:
            offsets.append(self.offset)
            self.offset += len(step.token.text)
        return {
            "tokens": [step.token.text for step in tokens],
            "token_logprobs": [step.token.logprob for step in tokens],
            "top_logprobs": [{t.text: t.logprob for t in step.alternatives} or None for step in tokens],
            "text_offset": offsets,
        }


class CompletionStream:
    """The chunks of a completion."""

    def __init__(self, request: GenerationRequest, answer: Answer) -> None:
        self.request, self.answer = request, answer
        self.logprobs = [Logprobs(request) for _ in answer.choices]

    def start(self) -> Iterator[Event]:
        return iter(())

    def add(self, delta: Delta) -> Iterator[Event]:
        if not (delta.text or delta.tokens or delta.finish_reason or delta.candidate):
            return
        choice: dict[str, Any] = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": self.logprobs[delta.index].add(delta.tokens),
            "finish_reason": delta.finish_reason,
        }
        if delta.candidate is not None:
            choice["candidates"] = [delta.candidate]
        begin = openai.head(self.answer, "cmpl", "text_completion")
        yield None, {**begin, "choices": [choice], **openai.usage_so_far(self.request, self.answer)}

    def end(self) -> Iterator[Event]:
        if self.request.stream_usage:
            begin = openai.head(self.answer, "cmpl", "text_completion")
            yield None, {**begin, "choices": [], "usage": openai.usage(self.answer.usage)}
        yield openai.DONE

    def failed(self, error: RequestError) -> Iterator[Event]:
        yield None, openai.error(error)


RESPONSE = openai.response("text_completion", "text", TEXT, ("stop", "length"))

ENDPOINT = Endpoint(
    path="/v1/completions",
    about="Continue a text, translate it, or fill its masks, as the model's task is.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=RESPONSE,
    stream=CompletionStream,
    error=openai.error,
)
