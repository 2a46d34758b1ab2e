"""Finds the forms in which a chat template takes messages, and puts messages in them.

Templates take a content as a text, as parts, or as both; they write the calls of a message where its content is missing,
empty or null; they take arguments as an object or as JSON text. A template that gets another form raises an error or
leaves something out. So it renders short conversations in every form, and their texts are looked for in the output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import product
from typing import Any

from zoo.errors import TokenizerError
from zoo.frozen import Frozen, frozen
from zoo.tokenizer.chat_messages import Message, arguments_of, text_of
from zoo.tokenizer.chat_process import plain_json, render_all

CONTENTS: Mapping[str, Message] = {
    "absent": {},
    "empty": {"content": ""},
    "null": {"content": None},
    "text": {},
}
"""The contents of a message with calls, as keys that replace its own; "text" stands for any text or parts."""

ARGUMENTS = ("object", "string")
MISSING, ALTERED, WRITTEN = range(3)  # how the arguments of a call are in the output

PROBED = ("system", "user", "assistant", "tool")
CALLING = "assistant beside tool calls"
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

CallForm = tuple[str, str, bool]
"""The form of a message with calls: a key of CONTENTS, one of ARGUMENTS, and whether there are several calls."""


@frozen()
class ChatForms(Frozen):
    """The forms of messages that a template writes.

    `text` and `parts`: the roles whose content it writes as a string, and as a list of parts; `CALLING` among `text` stands
    for the text of a message with calls. `calls`: how it writes the arguments of the last call, MISSING, ALTERED or
    WRITTEN, for each form in which it raises no error.
    """

    text: frozenset[str]
    parts: frozenset[str]
    calls: Mapping[CallForm, int] = field(default_factory=dict)

    def adapted(self, message: Message, where: str) -> Message:
        """A checked message in the form that the template writes; TokenizerError where it would leave out a call."""
        content, role = message.get("content"), message["role"]
        if role not in PROBED:
            role = "user"
        if content and isinstance(content, str) and role in self.parts - self.text:
            message = message | {"content": [{"type": "text", "text": content}]}
        elif isinstance(content, list | tuple) and role not in self.parts:
            message = message | {"content": text_of(message)}
        if not message.get("tool_calls"):
            return message
        return self._with_calls(message, where)

    def _with_calls(self, message: Message, where: str) -> Message:
        calls = message["tool_calls"]
        calls = calls if isinstance(calls, list | tuple) else [calls]
        contents = ("absent", "empty", "null") if "content" not in message else ("empty", "absent", "null")
        if text_of(message):
            contents = ("text",)
        forms = [(*form, len(calls) > 1) for form in product(contents, ARGUMENTS)]
        form = max(forms, key=lambda form: self.calls.get(form, -1))
        if self.calls.get(form) == MISSING:
            raise TokenizerError(f"{where}: {self._missing(form)}")
        name, arguments, _ = form
        if name != "text":
            message = {key: value for key, value in message.items() if key != "content"} | CONTENTS[name]
        return message | {"tool_calls": [_with_arguments(call, arguments) for call in calls]}

    def _missing(self, form: CallForm) -> str:
        """Why a template that leaves out calls of this form cannot take them."""
        written = {known for known, how in self.calls.items() if how != MISSING}
        if not written:
            return "the template writes no tool calls"
        if any(name == form[0] and not several for name, _, several in written):
            return "the template writes only one tool call of a message"
        return "the template writes no tool calls of a message that has a text"

    def left_out(self, messages: Iterable[Message], rendered: str) -> list[str]:
        """The roles whose texts the template does not write in any form, of messages that were rendered."""
        return sorted(
            {
                place
                for message in messages
                if text_of(message).strip() not in rendered
                and (place := _place(message)) not in self.text | self.parts
            }
        )


def chat_forms(template: str, variables: Mapping[str, Any]) -> ChatForms:
    """The forms that a template takes where it sees these variables. They are found once, and remembered."""
    tools = [TOOL] if variables.get("tools") else None
    return _found(template, plain_json({**variables, "tools": tools, "documents": None}))


@lru_cache(maxsize=64)
def _found(template: str, variables: str) -> ChatForms:
    conversations = [*_role_probes(), *_call_probes()]
    known = json.loads(variables)
    outputs = render_all(template, [{**known, "messages": messages} for messages in conversations])
    text, parts, calls = set(), set(), {}
    for messages, output in zip(conversations, outputs, strict=True):
        for message in messages if isinstance(output, str) else ():
            if _is_written(text_of(message), output):
                (text if isinstance(message["content"], str) else parts).add(_place(message))
            if "tool_calls" in message:
                form, how = _call_form(message), _written(message["tool_calls"][-1], output)
                calls[form] = max(how, calls.get(form, MISSING))
    return ChatForms(frozenset(text), frozenset(parts), calls)


def _role_probes() -> Iterable[list[Message]]:
    """Conversations without tools whose contents are texts, parts, and parts in one role."""
    roles = ("system", "user", "assistant")
    for with_parts in ((), roles, *((role,) for role in roles)):
        turns = [
            _message(role, f"probe{role}{turn}", role in with_parts)
            for turn, role in enumerate(("system", "user", "assistant", "user"))
        ]
        yield from (turns, turns[1:])  # some templates refuse a system message


def _call_probes() -> Iterable[list[Message]]:
    """Conversations with a call, or two, in every form, whose other contents are texts or parts."""
    for name, arguments, count, parts in product(CONTENTS, ARGUMENTS, (1, 2), (False, True)):
        ids = [CALL_ID.format(number) for number in range(count)]
        calls = [{"id": id, "type": "function", "function": _function(f"probevalue{id}")} for id in ids]
        calling = _message("assistant", "probecalling", parts) if name == "text" else {"role": "assistant"}
        yield [
            _message("user", "probeasking", parts),
            calling | CONTENTS[name] | {"tool_calls": [_with_arguments(call, arguments) for call in calls]},
            *(
                _message("tool", f"proberesult{id}", parts) | {"tool_call_id": id, "name": TOOL_NAME}
                for id in ids
            ),
        ]


def _function(value: str) -> Message:
    return {"name": TOOL_NAME, "arguments": {KEY: value}}


def _message(role: str, text: str, parts: bool) -> Message:
    return {"role": role, "content": [{"type": "text", "text": text}] if parts else text}


def _with_arguments(call: Mapping[str, Any], form: str) -> Message:
    """A call with its arguments as an object, or as JSON text; text that they are stays as it is."""
    arguments = call["function"].get("arguments", {})
    if form == "object":
        arguments = arguments_of(call)
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _call_form(message: Message) -> CallForm:
    """The form of a probe's message with calls."""
    content = {key: value for key, value in message.items() if key == "content"}
    name = next((name for name, known in CONTENTS.items() if known == content), "text")
    calls = message["tool_calls"]
    return name, ARGUMENTS[isinstance(calls[0]["function"]["arguments"], str)], len(calls) > 1


def _place(message: Message) -> str:
    """The role of a message; `CALLING` for one with calls."""
    return CALLING if message.get("tool_calls") else message["role"]


def _is_written(text: str, output: str) -> bool:
    """Whether a text is in the output, and not as part of a list of parts that was printed as it is."""
    return bool(text) and text in output and not re.search(rf"""["']text\\*["']: ?\\*["']{text}""", output)


def _written(call: Mapping[str, Any], output: str) -> int:
    """How a call's arguments are in the output; text quoted once more, and Python's own form of an object, are ALTERED."""
    value = arguments_of(call)[KEY]
    if value not in output:
        return MISSING
    return ALTERED if f'\\"{value}' in output or f"'{KEY}': '{value}" in output else WRITTEN
