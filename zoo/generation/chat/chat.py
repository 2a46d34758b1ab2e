"""`chat`: renders messages by the checkpoint's chat template and yields the answer as it is generated.

`next_turn_checkpoints` finds where this prompt and the next turn's diverge, to snapshot caches there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from zoo.errors import PromptError, TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.generation import check_loaded, stream
from zoo.generation.chat.parsing import Parser, answer_format
from zoo.generation.chat.tools import Tool, declarations
from zoo.generation.loop.prompt import encode_messages, encode_prompt, render_messages
from zoo.generation.loop.step import Step
from zoo.generation.prefix_cache.tree import common_prefix
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
    prompt = chat_prompt(loaded, messages, tools=tools, variables=variables)
    if settings.get("prompt_cache") is not None and "checkpoints" not in settings:
        settings["checkpoints"] = next_turn_checkpoints(loaded, messages, prompt.ids, prompt.variables)
    return prompt.parsed(stream(prompt.loaded, prompt.ids, **settings))


@frozen()
class ChatPrompt(Frozen):
    """The `ids` of a conversation's prompt, and what generates and parses the answer.

    The tokenizer of `loaded` writes the special tokens that the `parser` looks for; `parser` None: all of the answer is
    text. `variables` are those that the template saw.
    """

    loaded: Loaded
    ids: list[int]
    parser: Parser | None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def parsed(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps that `loaded` generates after `ids`, their text parsed; the last one also has what was held back.

        To be called once.
        """
        try:
            for step in steps:
                if self.parser is not None:
                    part = self.parser.add(step.text)
                    if step.finish_reason is not None:
                        part += self.parser.finish()
                    step = replace(step, text=part.text, thinking=part.thinking, tool_calls=part.calls)
                yield step
        finally:
            if isinstance(steps, Generator):  # closing this iterator closes that one
                steps.close()


def chat_prompt(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Iterable[Tool] = (),
    variables: Mapping[str, Any] | None = None,
) -> ChatPrompt:
    """The prompt of a conversation; the arguments and errors are those of `chat`."""
    declared = declarations(tools)
    variables = {**(variables or {}), **({"tools": declared} if declared else {})}
    return rendered_prompt(loaded, render_messages(loaded, messages, variables), variables)


def rendered_prompt(
    loaded: Loaded,
    text: str,
    variables: Mapping[str, Any] | None = None,
    ids: list[int] | None = None,
) -> ChatPrompt:
    """The prompt of a `text` that the chat template rendered with these variables, declared `tools` among them.

    `ids` encode the text; None: as the tokenizer does.
    """
    variables = variables or {}
    tools = variables.get("tools") or ()
    assert loaded.tokenizer is not None
    format = answer_format(loaded.tokenizer)
    if tools:
        name = loaded.folder.name or loaded.architecture.name
        if not re.search(r"\btools\b", loaded.tokenizer.chat_template or ""):
            raise PromptError(f"`tools`: the chat template of {name} takes none")
        if format.calls is None:
            warnings.warn(
                f"{name}: how it writes calls of tools is not known, so they come as text", stacklevel=4
            )
    ids = encode_prompt(loaded, text if ids is None else ids, special_tokens=False)
    visible = replace(loaded, tokenizer=loaded.tokenizer.with_visible_tokens(format.tokens))
    return ChatPrompt(visible, ids, format.parser(text, tools), variables)


FOLLOWING = ({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"})


def next_turn_checkpoints(
    loaded: Loaded,
    messages: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    variables: Mapping[str, Any] | None = None,
) -> Iterator[int]:
    """Yield the number of tokens that this prompt and the prompt of the next turn share, whatever the answer is.

    `ids` are those of `encode_messages` with the same messages and variables. A template may render a past answer
    differently from the prompt for it, for example without the thinking. So the conversation is rendered with one more
    turn or, where the template refuses that, without the generation prompt; this takes time, and is done when the
    first number is asked for. Yields nothing when all of the prompt is shared, or where rendering fails.
    """
    for following, more in ((FOLLOWING, {}), ((), {"add_generation_prompt": False})):
        try:
            later = encode_messages(loaded, [*messages, *following], {**(variables or {}), **more})
        except (TokenizerError, PromptError):  # the next turn alone fails: the prompt itself was rendered
            continue
        shared = common_prefix(list(ids), later)
        if 0 < shared < len(ids):
            yield shared
        return
