"""Which format a chat model answers in, by its template: the kinds that the zoo takes apart, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing import calls, harmony
from zoo.generation.chat.parsing.harmony import HarmonyParser
from zoo.generation.chat.parsing.parser import Parser
from zoo.generation.chat.parsing.tagged import CallTags, TaggedParser
from zoo.tokenizer import Tokenizer

THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""The tags around thinking. A template that drops or writes it has the closing one; else the vocabulary has both."""


@frozen()
class CallFormat(Frozen):
    """A way to write calls. A template that has all the `signs` in it is for models that write them so.

    `tokens` are the special tokens that a parser has to see; `tags` is None for harmony, which has messages.
    """

    name: str
    signs: tuple[str, ...]
    tags: CallTags | None
    tokens: tuple[str, ...] = ()


FORMATS = (
    CallFormat("harmony", (harmony.CHANNEL, harmony.MESSAGE), None, harmony.MARKS),
    CallFormat("hermes", ("<tool_call>",), CallTags("<tool_call>", "</tool_call>", calls.hermes)),
    CallFormat(
        "mistral",
        ("[TOOL_CALLS]",),
        CallTags("[TOOL_CALLS]", None, calls.mistral),
        (calls.ARGS, calls.CALL_ID),
    ),
    CallFormat(
        "llama3",
        ("<|start_header_id|>", '"parameters"'),
        CallTags("<|python_tag|>", None, calls.llama, calls.may_be_llama),
    ),
)


@frozen()
class AnswerFormat(Frozen):
    """How a model writes its answers: the tags of `thinking`, and how it writes `calls`; None for what it does not."""

    thinking: tuple[str, str] | None
    calls: CallFormat | None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The marks, of which those that are special tokens must be seen by the parser."""
        calls = self.calls
        opening = (
            (*(tag for tag in (calls.tags.opening, calls.tags.closing) if tag),)
            if calls and calls.tags
            else ()
        )
        return (*(self.thinking or ()), *opening, *(calls.tokens if calls else ()))

    def parser(self, prompt: str, tools: Sequence[Mapping[str, Any]] = ()) -> Parser | None:
        """A parser of the answer to a prompt, a rendered template; None where an answer is text and nothing else.

        Calls are looked for when `tools`, their declarations, are given.
        """
        if self.calls is not None and self.calls.tags is None:
            return HarmonyParser(bool(tools))
        tags = self.calls.tags if self.calls and tools else None
        if self.thinking is None and tags is None:
            return None
        begun = self.thinking is not None and prompt.rstrip().endswith(self.thinking[0])
        return TaggedParser(self.thinking, tags, tools, begun=begun)


def format_of(tokenizer: Tokenizer) -> AnswerFormat:
    """How a model with this tokenizer and chat template answers."""
    template = tokenizer.chat_template or ""
    kind = next((f for f in FORMATS if all(sign in template for sign in f.signs)), None)
    if kind is not None and kind.tags is None:
        return AnswerFormat(None, kind)
    thinking = next(
        (
            tags
            for tags in THINKING
            if tags[1] in template or all(tokenizer.id(tag) is not None for tag in tags)
        ),
        None,
    )
    return AnswerFormat(thinking, kind)
