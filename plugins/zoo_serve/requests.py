"""What protocols and the service exchange: requests, the parts of an answer, and errors. Imports no mlx.

A protocol turns JSON into a request, and the parts of an answer into JSON; the service knows nothing of JSON.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zoo.frozen import Frozen, frozen
from zoo.generation.loop.step import ToolCall


class RequestError(Exception):
    """A request that is not answered: an HTTP `status`, one line, and the field at fault.

    `code` is a short name for programs. `retry_after` is the number of seconds after which the request may be sent again.
    `length` is that of a prompt, or the least that it can be, and the context that it exceeds, both in tokens.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        length: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after
        self.length = length


@frozen(kw_only=True)
class GenerationRequest(Frozen):
    """A request for text.

    Either `prompts`, each a text or token ids, or the `messages` of a conversation. Each prompt is answered `count` times.
    `model` is a name that the server lists; None is its first model. `tools`, `tool_choice` and `variables` are those of
    `zoo.chat`, `settings` and `strategy` those of `zoo.stream`. Without `parallel_calls`, an answer has at most one call of a
    tool, and ends after it. `stream`: the parts of the answer are sent as they come,
    with the numbers of tokens in the end if `stream_usage`, and in each if `usage_in_each`. `notes` are lines for the log:
    what the request has and the server leaves out. `echo`: a completion repeats its prompt. `context` bounds the
    tokens of a prompt and its answer, as the model's context does. After `keep_alive` seconds the model may be unloaded,
    never where they are negative; None: as the server says.
    """

    model: str | None = None
    prompts: tuple[str | tuple[int, ...], ...] = ()
    messages: tuple[Mapping[str, Any], ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = "auto"
    parallel_calls: bool = True
    variables: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    strategy: str | None = None
    count: int = 1
    stream: bool = False
    stream_usage: bool = False
    usage_in_each: bool = False
    notes: tuple[str, ...] = ()
    echo: bool = False
    context: int | None = None
    keep_alive: float | None = None

    def for_model(self, chats: bool) -> GenerationRequest:
        """The request, and of one with both `messages` and `prompts` those that the model takes: messages if it `chats`."""
        if self.messages is None or not self.prompts:
            return self
        return replace(self, prompts=()) if chats else replace(self, messages=None)


@frozen(kw_only=True)
class EmbeddingRequest(Frozen):
    """A request for the vectors of some texts, each a text or token ids; of `dimensions` numbers if that is given.

    With `truncate`, a text beyond the context is cut. `context` and `keep_alive` are those of `GenerationRequest`.
    """

    model: str | None = None
    texts: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    encoding: str = "float"
    truncate: bool = False
    context: int | None = None
    keep_alive: float | None = None


@frozen(kw_only=True)
class ClassificationRequest(Frozen):
    """A request for the labels of some texts."""

    model: str | None = None
    texts: tuple[str, ...]


@frozen(kw_only=True)
class ScoreRequest(Frozen):
    """A request for how well the second text of each pair answers the first.

    `instruction` tells a language model what is sought. The answer to a reranking has the `top_n` best, with their `texts`.
    """

    model: str | None = None
    pairs: tuple[tuple[str, str], ...]
    instruction: str | None = None
    top_n: int | None = None
    texts: bool = True


@frozen(kw_only=True)
class TokenizeRequest(Frozen):
    """A request for the token ids of a text, or of a conversation as its chat template lays it out.

    With `token_texts`, for the text of each token, too.
    """

    model: str | None = None
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    special_tokens: bool = True
    token_texts: bool = False


@frozen(kw_only=True)
class DetokenizeRequest(Frozen):
    """A request for the text of token ids."""

    model: str | None = None
    tokens: tuple[int, ...]


@frozen(kw_only=True)
class ModelRequest(Frozen):
    """A request for what is known of a model; with `load` it is loaded first, or, with a `keep_alive` of 0, unloaded."""

    model: str | None = None
    load: bool = False
    keep_alive: float | None = None


# Of an answer: "thinking" or "text" with a text, or "call" with a ToolCall.
Part = tuple[str, Any]
Request = (
    GenerationRequest
    | EmbeddingRequest
    | ClassificationRequest
    | ScoreRequest
    | TokenizeRequest
    | DetokenizeRequest
    | ModelRequest
)


@frozen()
class Token(Frozen):
    """A token with its text, the bytes that it stands for (None where the tokenizer does not say), and its log-probability."""

    id: int
    text: str
    bytes: tuple[int, ...] | None
    logprob: float | None


@frozen()
class TokenLogprobs(Frozen):
    """A generated token and the likeliest tokens in its place, best first."""

    token: Token
    alternatives: tuple[Token, ...] = ()


@frozen(kw_only=True)
class Delta(Frozen):
    """What one step adds to one of the answers, whose number is `index`.

    `tokens` have an entry for each token of the step where log-probabilities were asked for. `finish_reason`, of the last
    delta, is "stop", "length" or "tool_calls"; `stop` is the stop string that ended the text. `candidate` is that of `zoo.Step`.
    """

    index: int
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    tokens: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None
    stop: str | None = None
    candidate: Mapping[str, Any] | None = None

    @property
    def parts(self) -> list[Part]:
        """What it adds, in order."""
        texts: list[Part] = [("thinking", self.thinking), ("text", self.text)]
        return [part for part in texts if part[1]] + [("call", call) for call in self.calls]


@dataclass
class Choice:
    """One of the answers to a request, as far as it has come. `parts` are its thinking, text and calls in their order."""

    text: str = ""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    tokens: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop: str | None = None
    candidates: list[Mapping[str, Any]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


@dataclass
class Usage:
    """Numbers of tokens: of all prompts, those of them that the prompt cache held, of all answers, and of thinking."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    thinking: int = 0


@dataclass
class Times:
    """Seconds of the monotonic clock: when the request came, its model was loaded, and its first and last token came."""

    asked: float = 0.0
    loaded: float = 0.0
    first_token: float | None = None
    last_token: float | None = None


@dataclass
class Answer:
    """The answers to a request, `choices`, as far as they have come. `created` is in seconds since 1970."""

    model: str
    choices: list[Choice]
    usage: Usage = field(default_factory=Usage)
    times: Times = field(default_factory=Times)
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def add(self, delta: Delta) -> None:
        """Add a part."""
        choice = self.choices[delta.index]
        choice.text += delta.text
        choice.thinking += delta.thinking
        choice.calls += delta.calls
        choice.tokens += delta.tokens
        choice.finish_reason = delta.finish_reason or choice.finish_reason
        choice.stop = delta.stop or choice.stop
        if delta.candidate is not None:
            choice.candidates.append(delta.candidate)
        for kind, value in delta.parts:
            if kind != "call" and choice.parts and choice.parts[-1][0] == kind:
                value = choice.parts.pop()[1] + value
            choice.parts.append((kind, value))
