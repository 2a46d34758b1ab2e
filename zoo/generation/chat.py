"""Messages to an answer: `chat` lays them out by the checkpoint's template and yields the answer as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.generation import check_loaded, stream
from zoo.generation.prompt import encode_messages
from zoo.generation.step import Step
from zoo.loading import Loaded


def chat(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    variables: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Step]:
    """Answer the last of `messages`, yielding a `Step` a token as `stream` does, whose settings it takes.

    The messages, each with a "role" ("system", "user", "assistant") and a "content", are laid out by the checkpoint's
    chat template; `variables` are what the template sees besides, such as `tools` or `enable_thinking`. PromptError,
    before anything runs, for a model without a chat template (`zoo.stream` continues a text); TokenizerError for what
    the template refuses.

    The embedded checkpoints have no template: the example gives one by hand.

    >>> loaded = zoo.load("llama")
    >>> loaded.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    >>> messages = [{"role": "user", "content": "The capital city of China is"}]
    >>> "".join(step.text for step in zoo.chat(loaded, messages))
    ' Beijing.'
    """
    check_loaded(loaded, "chat")
    return stream(loaded, encode_messages(loaded, messages, variables), **settings)
