"""Grammars of whole answers: thinking that may come first, then what a constraint allows.

Grammars are written in llguidance's Lark: `<[7]>` is the token 7, `%lark {…}` a grammar within another. A special token
has no bytes in a text, so a grammar must name it as a token; other tags of a format are written as tokens, too, where the
vocabulary has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.generation.chat.parsing import AnswerFormat
from zoo.generation.grammar.compile import compile_grammar
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.settings import ONE_OF
from zoo.loading import Loaded
from zoo.tokenizer.chat_messages import Message

QUESTION, TEXT = (
    "zoo question",
    "zoo answer",
)  # of the conversations that show how a template writes an answer
NAME, KEY = "zootool", "zookeya"  # of the tool that these conversations call
SAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A tool.",
        "parameters": {"type": "object", "properties": {KEY: {"type": "string"}}},
    },
}
LEAD = r"/[ \n]{1,2}/?"  # white space after thinking, which parsers leave out
ANY = "/(?s:.*)/"


@frozen()
class AnswerSyntax(Frozen):
    """How a model writes the answer to a rendered `prompt`, found in what its chat template writes.

    `variables` are those of the template, `format` says how answers are parsed.
    """

    loaded: Loaded
    format: AnswerFormat
    prompt: str
    variables: Mapping[str, Any]

    def constrained(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, with a `json_schema`, `regex` or `grammar` that allows thinking before what it constrains.

        PromptError, naming the setting, for an unsupported constraint.
        """
        forms = {name: settings[name] for name in ONE_OF if settings.get(name) is not None}
        head = self._text_head if len(forms) == 1 else ""
        if len(forms) != 1 or not (self._thinking or head):
            return dict(settings)  # of two constraints the settings say that they cannot be given together
        written = str(forms.get("regex") or forms.get("grammar") or "")
        if self.format.thinking is not None and self.format.thinking[0].strip() in written:
            return dict(settings)  # one that writes the thinking itself
        compiled = compile_grammar(**forms)
        assert compiled is not None
        rest = {name: value for name, value in settings.items() if name not in forms}
        return {
            **rest,
            "grammar": self.grammar(f"{self.literal(head)} answer", f"answer: {nested(compiled.lark)}"),
        }

    def grammar(self, answer: str, rules: str, lead: str = LEAD) -> str:
        """The grammar of an answer, an expression of these rules, after thinking where some may come, and a `lead`."""
        if self._thinking is None or self.format.thinking is None:
            return f"start: {answer}\n{rules}\n"
        opening, optional = self._thinking
        header = self.format.calls.header if self.format.calls else ""
        lead = self.literal(header) if header else lead
        thought = self.until("thought", self.format.thinking[1].strip())
        return f"start: ({opening} thought {lead}){optional} {answer}\n{thought}{rules}\n"

    def literal(self, text: str) -> str:
        """A text as an expression, its tags as tokens."""
        parts = [part for part in self._tags.split(text) if part]
        written = [
            f"<[{self._ids[p]}]>" if p in self._ids else json.dumps(p, ensure_ascii=False) for p in parts
        ]
        return " ".join(written) or '""'

    def until(self, name: str, closing: str, pattern: str = ANY) -> str:
        """Grammar rules, the first called `name`, for a text that matches `pattern` and ends at the first `closing`."""
        special = next(
            (m.start() for m in self._tags.finditer(closing) if self._is_special(m[0])), len(closing)
        )
        end, rest = closing[:special], closing[special:]
        rest = self.literal(rest) if rest else ""
        if not end:
            return f"{name}: {name.upper()}? {rest}\n{name.upper()}: {pattern} & /(?s:.+)/\n"
        without = f"~/(?s:.*){re.escape(end).replace('/', chr(92) + '/')}(?s:.*)/"
        return (
            f"{name}: {name}_end {rest}\n{name}_end[suffix={json.dumps(end, ensure_ascii=False)}]: {name.upper()}\n"
            f"{name.upper()}: {pattern} & {without}\n"
        )

    def written(self, message: Message) -> str:
        """What the template writes of an assistant's message, from where the answer begins, to its end.

        TokenizerError where the template refuses the message.
        """
        question = {"role": "user", "content": QUESTION}
        prompt, text = self._rendered([question]), self._rendered([question, message], prompt=False)
        start = common_prefix(prompt, text)
        without = self._rendered([question], prompt=False)
        # A prompt may end with more than an answer begins with.
        if start < len(prompt) and prompt.startswith(without):
            header = prompt[len(without) :]
            start = max(start, sum(max((common_prefix(header, text[at:]), at) for at in range(start + 1))))
        # A prompt that ends with "<think>" shares "<t" with a "<tool_call>".
        spans = (found.span() for found in self._all_tags.finditer(text))
        return text[next((a for a, b in spans if a < start < b), start) :]

    def _rendered(self, messages: Sequence[Message], prompt: bool = True) -> str:
        from zoo.tokenizer.chat_process import plain_json

        tokenizer = self.loaded.tokenizer
        assert tokenizer is not None
        tools = {"tools": [SAMPLE_TOOL]} if self.variables.get("tools") else {}
        variables = {**tokenizer.special_tokens, **self.variables, **tools, "add_generation_prompt": prompt}
        text = _rendered(tokenizer.chat_template or "", plain_json([messages, variables]))
        if isinstance(text, TokenizerError):
            raise text
        return text

    def after_thinking(self, head: str) -> str:
        """The text before an answer without the thinking in it."""
        return head.rpartition(self.format.thinking[1].strip())[2] if self.format.thinking else head

    def until_end(self, text: str) -> str:
        """The text before the first token that ends an answer."""
        tokenizer = self.loaded.tokenizer
        assert tokenizer is not None
        return min(
            (text.partition(tokenizer.token(id))[0] for id in tokenizer.eos_ids), key=len, default=text
        )

    @cached_property
    def text_end(self) -> str:
        """What the template writes after an answer that is text."""
        return self._written_text[1]

    @cached_property
    def _text_head(self) -> str:
        question = [{"role": "user", "content": QUESTION}]
        if self._rendered(question) == self._rendered(question, prompt=False):
            return ""  # what a template that begins no answers writes before one is not the model's
        return self.after_thinking(self._written_text[0]).strip()

    @cached_property
    def _written_text(self) -> tuple[str, str]:
        try:
            head, _, end = self.written({"role": "assistant", "content": TEXT}).partition(TEXT)
        except TokenizerError:
            return "", ""
        return head, end

    @cached_property
    def _thinking(self) -> tuple[str, str] | None:
        """What opens the thinking of this answer, and "?" where it may be left out; None where none may come."""
        if self.format.thinking is None:
            return None
        opening, closing = (tag.strip() for tag in self.format.thinking)
        end = self.prompt.rstrip()
        if end.endswith(opening):
            return "", ""
        return None if end.endswith(closing) else (self.literal(self.format.thinking[0]), "?")

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The tags that are tokens, by their text."""
        assert self.loaded.tokenizer is not None
        ids = {tag: self.loaded.tokenizer.id(tag) for tag in self.format.tokens}
        return {tag: id for tag, id in ids.items() if id is not None}

    def _is_special(self, tag: str) -> bool:
        assert self.loaded.tokenizer is not None
        return not self.loaded.tokenizer.decode([self._ids[tag]])

    @cached_property
    def _tags(self) -> re.Pattern[str]:
        return _any_of(self._ids)

    @cached_property
    def _all_tags(self) -> re.Pattern[str]:
        return _any_of(self.format.tokens)


@lru_cache(maxsize=256)
def _rendered(template: str, request: str) -> str | TokenizerError:
    """Messages as a template writes them, or its error; `request` has them and the variables as JSON."""
    from zoo.tokenizer.chat import render_chat

    messages, variables = json.loads(request)
    try:
        return render_chat(template, messages, special_tokens={}, variables=variables)
    except TokenizerError as error:
        return error


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """An expression that matches any of the texts, in a group of its own; nothing without one."""
    return re.compile(f"({'|'.join(map(re.escape, sorted(texts, key=len, reverse=True))) or '(?!)'})")


def nested(lark: str) -> str:
    """A grammar as an expression of another."""
    return f"%lark {{\n{lark}\n}}"
