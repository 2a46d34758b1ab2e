"""Finds the forms in which a chat template takes messages, and puts messages in them.

Templates take a content as a text, as parts, or as both; they write the calls of a message where its content is missing,
empty or null; they take arguments as an object or as JSON text. A template that gets another form raises an error or
leaves something out. `chat_forms` renders short conversations, the probes, in every form, and looks for their texts in
the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import product
from typing import Any

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer.chat_messages import Message, arguments_of, text_of
from zoo.tokenizer.chat_process import plain_json, render_all

EMPTY: Mapping[str, Message] = {"absent": {}, "empty": {"content": ""}, "null": {"content": None}}
"""The forms of a content that says nothing."""

ARGUMENTS = ("object", "string")
REFUSED, MISSING, ALTERED, WRITTEN = range(4)  # what a template does with the arguments of a call

CALLING = "assistant beside tool calls"
ROLES = ("system", "user", "assistant", "tool", CALLING)
KEY, TOOL_NAME, CALL_ID = "probekey", "probetool", "probe000{}"  # Mistral's ids have nine letters and digits
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "A text."}},
            "required": [KEY],
        },
    },
}

CallForm = tuple[str, str, bool, bool]
"""The form of calls: "text" or a key of EMPTY; one of ARGUMENTS; whether there are several; whether results follow."""


@frozen()
class ChatForms(Frozen):
    """The forms of messages that a template accepts and writes out.

    `text` and `parts`: the roles whose content it writes as a string, and as a list of parts; `CALLING` among them stands
    for messages with calls. `calls`: how it writes the arguments of the last call, for each form that it does not refuse.
    """

    text: frozenset[str]
    parts: frozenset[str]
    calls: Mapping[CallForm, int] = field(default_factory=dict)

    def adapted(self, messages: Sequence[Message], names: Sequence[str]) -> list[Message]:
        """Checked messages in the form that the template writes.

        TokenizerError, beginning with the message's name, where the template would leave out a call.
        """
        adapted = [self._with_content(message) for message in messages]
        for index, message in enumerate(adapted):
            if message.get("tool_calls"):
                answered = index + 1 < len(adapted) and adapted[index + 1]["role"] == "tool"
                adapted[index] = self._with_calls(message, answered, names[index])
        return adapted

    def _with_content(self, message: Message) -> Message:
        content, role = message.get("content"), _role(message)
        if role not in ROLES:
            role = "user"
        if content and isinstance(content, str) and role in self.parts - self.text:
            return message | {"content": _content(content, parts=True)}
        if isinstance(content, list | tuple) and role not in self.parts:
            return message | {"content": text_of(message)}
        return message

    def _with_calls(self, message: Message, answered: bool, name: str) -> Message:
        calls = message["tool_calls"]
        calls = calls if isinstance(calls, list | tuple) else [calls]
        own = "text" if text_of(message) else "empty" if "content" in message else "absent"
        contents = [own] if own == "text" else [own, *EMPTY]
        for results in (answered, not answered):  # some templates refuse results
            forms = [(*form, len(calls) > 1, results) for form in product(contents, ARGUMENTS)]
            form = max(forms, key=lambda form: self.calls.get(form, REFUSED))  # the first of the best
            how = self.calls.get(form, REFUSED)
            if how == MISSING:
                raise TokenizerError(f"{name}: {self._why_missing(form)}")
            if how != REFUSED:
                break
        content, arguments, *_ = form  # its own where all are refused: the template says why
        if content != "text":
            message = {key: value for key, value in message.items() if key != "content"} | EMPTY[content]
        return message | {"tool_calls": [_with_arguments(call, arguments) for call in calls]}

    def _why_missing(self, form: CallForm) -> str:
        """The reason why a template leaves out calls of this form."""
        content, _, several, answered = form
        written = {(known[0], *known[2:]) for known, how in self.calls.items() if how != MISSING}
        if not written:
            return "the template writes no tool calls"
        if several and (content, False, answered) in written:
            return "the template writes only one tool call of a message"
        if (content, several, not answered) in written:
            return f"the template writes no tool calls {'with' if answered else 'without'} results after them"
        return f"the template writes no tool calls of a message {'with' if content == 'text' else 'without'} a text"

    def left_out(self, messages: Iterable[Message], rendered: str) -> list[str]:
        """The roles of messages whose text is missing from `rendered` and which the template writes in no form."""
        written, missing = self.text | self.parts, set[str]()
        for message in messages:
            role = _role(message)  # one that misses a text is not looked for again: long texts take time
            if role not in written | missing and text_of(message).strip() not in rendered:
                missing.add(role)
        return sorted(missing)


def chat_forms(template: str, variables: Mapping[str, Any]) -> ChatForms:
    """The forms that a template takes where it sees these variables. They are found once, and remembered."""
    tools = [TOOL] if variables.get("tools") else None
    return _find_forms(template, plain_json({**variables, "tools": tools, "documents": None}))


@lru_cache(maxsize=64)
def _find_forms(template: str, variables: str) -> ChatForms:
    probes = [*((None, messages) for messages in _role_probes()), *_call_probes()]
    known = json.loads(variables)
    outputs = render_all(template, [{**known, "messages": messages} for _, messages in probes])
    text, parts = set[str](), set[str]()
    calls: dict[CallForm, int] = {}
    for (form, messages), output in zip(probes, outputs, strict=True):
        if not isinstance(output, str):
            continue
        for message in messages:
            if _is_written(text_of(message), output):
                (text if isinstance(message["content"], str) else parts).add(_role(message))
            if form is not None and "tool_calls" in message:
                calls[form] = max(calls.get(form, MISSING), _written(message["tool_calls"][-1], output))
    return ChatForms(frozenset(text), frozenset(parts), calls)


def _role_probes() -> Iterable[list[Message]]:
    """Conversations without calls whose contents are texts, parts, and parts in one role."""
    roles = ("system", "user", "assistant")
    for with_parts in ((), roles, *((role,) for role in roles)):
        turns = [
            {"role": role, "content": _content(f"probe{role}{turn}", role in with_parts)}
            for turn, role in enumerate(("system", "user", "assistant", "user"))
        ]
        yield from (turns, turns[1:])  # some templates refuse a system message


def _call_probes() -> Iterable[tuple[CallForm, list[Message]]]:
    """Conversations with a call, or two, in every form; the other contents are texts or parts."""
    for content, arguments, several, parts in product(
        ("text", *EMPTY), ARGUMENTS, (False, True), (False, True)
    ):
        ids = [CALL_ID.format(number) for number in range(1 + several)]
        functions = [{"name": TOOL_NAME, "arguments": {KEY: f"probevalue{id}"}} for id in ids]
        calls = [
            _with_arguments({"id": id, "type": "function", "function": function}, arguments)
            for id, function in zip(ids, functions, strict=True)
        ]
        calling = EMPTY.get(content, {"content": _content("probecalling", parts)})
        results = [
            {
                "role": "tool",
                "tool_call_id": id,
                "name": TOOL_NAME,
                "content": _content(f"proberesult{id}", parts),
            }
            for id in ids
        ]
        messages = [
            {"role": "user", "content": _content("probeasking", parts)},
            {"role": "assistant", **calling, "tool_calls": calls},
        ]
        yield (content, arguments, several, False), messages
        yield (content, arguments, several, True), [*messages, *results]


def _content(text: str, parts: bool) -> str | list[Message]:
    return [{"type": "text", "text": text}] if parts else text


def _with_arguments(call: Mapping[str, Any], form: str) -> Message:
    """A call with its arguments in one of the forms ARGUMENTS. In "string", arguments that are JSON text stay unchanged."""
    arguments = call["function"].get("arguments", {})
    if form == "object":
        arguments = arguments_of(call)
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _role(message: Message) -> str:
    """The role of a message; `CALLING` for one with calls."""
    return CALLING if message.get("tool_calls") else message["role"]


def _is_written(text: str, output: str) -> bool:
    """Whether the output contains a text, other than within a printed list of parts."""
    return bool(text) and text in output and not re.search(rf"""["']text\\*["']: ?\\*["']{text}""", output)


def _written(call: Mapping[str, Any], output: str) -> int:
    """How the output contains a call's arguments: ALTERED where they are quoted twice or printed as a Python dict."""
    value = arguments_of(call)[KEY]
    if value not in output:
        return MISSING
    return ALTERED if f'\\"{value}' in output or f"'{KEY}': '{value}" in output else WRITTEN
