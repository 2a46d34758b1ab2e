"""The formats of chat models' answers, recognised by the chat template."""

from __future__ import annotations

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing import calls, harmony
from zoo.generation.chat.parsing.calls import Tools
from zoo.generation.chat.parsing.parser import Parser
from zoo.generation.chat.parsing.tagged import CallFormat, TaggedParser
from zoo.tokenizer import Tokenizer

THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""The tags around thinking. A template that drops or writes it has the closing one; else the vocabulary has both."""

FORMATS = (
    CallFormat("harmony", (harmony.CHANNEL, harmony.MESSAGE), tokens=harmony.TOKENS),
    CallFormat("hermes", ("<tool_call>",), "<tool_call>", "</tool_call>", calls.hermes),
    CallFormat(
        "mistral", ("[TOOL_CALLS]",), "[TOOL_CALLS]", None, calls.mistral, tokens=(calls.ARGS, calls.CALL_ID)
    ),
    CallFormat(
        "llama3",
        ("<|start_header_id|>", '"parameters"'),
        "<|python_tag|>",
        None,
        calls.llama,
        calls.may_be_llama,
    ),
)


@frozen()
class AnswerFormat(Frozen):
    """How a model writes its answers: the tags of `thinking`, and how it writes `calls`; None for what it does not."""

    thinking: tuple[str, str] | None
    calls: CallFormat | None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tags. The parser must see those that are special tokens."""
        calls = () if self.calls is None else (self.calls.opening, self.calls.closing, *self.calls.tokens)
        return tuple(filter(None, (*(self.thinking or ()), *calls)))

    def parser(self, prompt: str, tools: Tools = ()) -> Parser | None:
        """A parser of the answer to a rendered prompt; None where an answer is text and nothing else.

        Calls are looked for when `tools`, their declarations, are given.
        """
        if self.calls is not None and self.calls.parse is None:
            return harmony.HarmonyParser(bool(tools))
        calls = self.calls if tools else None
        if self.thinking is None and calls is None:
            return None
        in_thinking = self.thinking is not None and prompt.rstrip().endswith(self.thinking[0])
        return TaggedParser(self.thinking, calls, tools, in_thinking=in_thinking)


def answer_format(tokenizer: Tokenizer) -> AnswerFormat:
    """The format of the answers of a model with this tokenizer and chat template."""
    template = tokenizer.chat_template or ""
    format = next((f for f in FORMATS if all(marker in template for marker in f.template_markers)), None)
    if format is not None and format.parse is None:
        return AnswerFormat(None, format)
    for tags in THINKING:
        if tags[1] in template or all(tokenizer.id(tag) is not None for tag in tags):
            return AnswerFormat(tags, format)
    return AnswerFormat(None, format)
