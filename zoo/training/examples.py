"""Examples: the records of a data file on which a model is tuned or judged. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen

Message = Mapping[str, Any]  # as `zoo.generation.chat` takes them: "role", "content", perhaps "tool_calls"


@frozen()
class Example(Frozen):
    """One record of a data file. `origin` is the file and the line that errors name: "data.jsonl, line 3"."""

    origin: str


@frozen()
class TextExample(Example):
    """A text; every token is a target: `{"text": …}`."""

    text: str


@frozen()
class Completion(Example):
    """A prompt and its completion, the only target: `{"prompt": …, "completion": …}`."""

    prompt: str
    completion: str


@frozen()
class Conversation(Example):
    """A conversation whose assistant's messages are the targets: `{"messages": […], "tools": […]}`."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@frozen()
class Preference(Example):
    """A prompt with a better and a worse answer: `{"prompt": …, "chosen": …, "rejected": …}`.

    A prompt is a text, or the messages before the answer.
    """

    prompt: str | tuple[Message, ...]
    chosen: str
    rejected: str


@frozen()
class TranslationPair(Example):
    """A text and its translation: `{"source": …, "target": …}`."""

    source: str
    target: str


@frozen()
class SentencePair(Example):
    """Two sentences of similar meaning, and optionally one of another: `{"anchor": …, "positive": …, "negative": …}`."""

    anchor: str
    positive: str
    negative: str | None = None


@contextmanager
def named_errors(example: Example) -> Iterator[None]:
    """Let a ZooError begin with the file and the line of the example."""
    try:
        yield
    except ZooError as error:
        raise type(error)(f"{example.origin}: {error}") from error
