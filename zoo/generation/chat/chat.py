"""Messages to an answer: `chat` lays them out by the checkpoint's template and yields the answer as it comes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation import check_loaded, stream
from zoo.generation.chat.checkpoints import next_turn_checkpoints
from zoo.generation.chat.parsing import Parser, format_of
from zoo.generation.chat.tools import Tool, declarations
from zoo.generation.loop.prompt import encode_prompt, render_messages
from zoo.generation.loop.step import Step
from zoo.loading import Loaded


def chat(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Iterable[Tool] = (),
    variables: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Step]:
    """Answer the last of `messages`, yielding a `Step` a token as `stream` does, whose settings it takes.

    The messages, each with a "role" ("system", "user", "assistant", "tool") and a "content", are laid out by the
    checkpoint's chat template; `variables` are what the template sees besides, such as `enable_thinking`. `tools` are
    those that the model may call: OpenAI's JSON declarations, or Python functions with type hints. A step's `text` is the
    answer, `thinking` the reasoning before it, and `tool_calls` are complete calls; what is no whole call in the end is
    text. A `prompt_cache` is used up to where the conversation is the one that it has seen. PromptError, before anything
    runs, for a model without a chat template (`zoo.stream` continues a text), and for
    tools that its template does not take; TokenizerError for what the template refuses.

    The embedded checkpoints have no template: the example gives one by hand.

    >>> loaded = zoo.load("llama")
    >>> loaded.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    >>> messages = [{"role": "user", "content": "The capital city of China is"}]
    >>> "".join(step.text for step in zoo.chat(loaded, messages))
    ' Beijing.'
    """
    check_loaded(loaded, "chat")
    messages = list(messages) if isinstance(messages, Iterator) else messages
    question = asked(loaded, messages, tools=tools, variables=variables)
    if settings.get("prompt_cache") is not None and "checkpoints" not in settings:
        settings["checkpoints"] = next_turn_checkpoints(loaded, messages, question.ids, question.variables)
    return question.answer(stream(question.loaded, question.ids, **settings))


@frozen()
class Question(Frozen):
    """A conversation as a prompt: its `ids`, the model whose text shows the marks of its answer, and their parser.

    `variables` are those that the template saw.
    """

    loaded: Loaded
    ids: list[int]
    parser: Parser | None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def answer(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps that `loaded` generates after `ids`, their text taken apart. To be called once."""
        return steps if self.parser is None else _parsed(steps, self.parser)


def asked(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Iterable[Tool] = (),
    variables: Mapping[str, Any] | None = None,
) -> Question:
    """The prompt of a conversation; the arguments and errors are those of `chat`."""
    declared = declarations(tools)
    given = {**(variables or {}), **({"tools": declared} if declared else {})}
    return question_of(loaded, render_messages(loaded, messages, given), given)


def question_of(loaded: Loaded, text: str, variables: Mapping[str, Any] | None = None) -> Question:
    """The prompt whose text the chat template has laid out with these variables, declared `tools` among them."""
    variables = variables or {}
    tools = variables.get("tools") or ()
    assert loaded.tokenizer is not None
    format = format_of(loaded.tokenizer)
    if tools:
        name = loaded.folder.name or loaded.architecture.name
        if not re.search(r"\btools\b", loaded.tokenizer.chat_template or ""):
            raise PromptError(f"`tools`: the chat template of {name} takes none")
        if format.calls is None:
            warnings.warn(
                f"{name}: how it writes calls of tools is not known, so they come as text", stacklevel=4
            )
    ids = encode_prompt(loaded, text, special_tokens=False)
    return Question(with_marks(loaded), ids, format.parser(text, tools), variables)


def with_marks(loaded: Loaded) -> Loaded:
    """The model with a tokenizer that writes the special tokens by which its answers are taken apart."""
    assert loaded.tokenizer is not None
    return replace(loaded, tokenizer=loaded.tokenizer.showing(format_of(loaded.tokenizer).tokens))


def _parsed(steps: Iterator[Step], parser: Parser) -> Iterator[Step]:
    """The steps with their text taken apart; the last one has what was held back, too."""
    try:
        for step in steps:
            found = [parser.add(step.text)]
            if step.finish_reason is not None:
                found.append(parser.finish())
            yield replace(
                step,
                text="".join(part.text for part in found),
                thinking="".join(part.thinking for part in found),
                tool_calls=tuple(call for part in found for call in part.calls),
            )
    finally:
        if isinstance(steps, Generator):  # who stops early stops it, too
            steps.close()
