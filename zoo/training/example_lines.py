"""The examples of a file of JSON lines: the form of a line is recognised by its keys, and its values are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import PromptError, ZooError
from zoo.generation.chat.conversation import checked_message
from zoo.generation.chat.tools import declarations
from zoo.tokenizer.chat_messages import text_of
from zoo.training.examples import (
    Completion,
    Conversation,
    Example,
    Message,
    Preference,
    SentencePair,
    TextExample,
    TranslationPair,
)
from zoo.training.json_lines import json_lines, text_at

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """A form of lines: those that have all of `keys` are examples of `kind`, which `read(origin, record)` makes."""

    kind: type[Example]
    keys: tuple[str, ...]
    read: Callable[[str, Record], Example]


def examples_of(file: Path) -> Iterator[Example]:
    """The examples of a file, in order. ZooError, with the line's number, for a line that is none."""
    empty = True
    for origin, record in json_lines(file):
        empty = False
        yield _read(origin, record)
    if empty:
        raise ZooError(f"{file}: holds no example")


def keys_of(kind: type[Example]) -> str:
    """The keys that make a line an example of this kind, in words."""
    return next(_words(form.keys) for form in FORMS if form.kind is kind)


def _words(keys: tuple[str, ...]) -> str:
    return " and ".join(f'"{key}"' for key in keys)


def _read(origin: str, record: Record) -> Example:
    """The example of a record: of the first form all of whose keys it has."""
    for form in FORMS:
        if all(key in record for key in form.keys):
            return form.read(origin, record)
    for form in FORMS:
        if any(key in record for key in form.keys):
            missing = next(key for key in form.keys if key not in record)
            raise ZooError(f'{origin}: has no "{missing}"')
    raise ZooError(f"{origin}: needs {', or '.join(_words(form.keys) for form in FORMS)}")


def _text(origin: str, record: Record, key: str) -> str:
    """The text at a key, which must not be blank."""
    text = text_at(origin, record, key)
    if not text.strip():
        raise ZooError(f'{origin}: "{key}" is empty')
    return text


def _preference(origin: str, record: Record) -> Preference:
    """A preference. An answer may also be a list of messages that ends with it; those before are the prompt."""
    (before, chosen), (other, rejected) = (_answer(origin, record, key) for key in ("chosen", "rejected"))
    if before != other:
        raise ZooError(f'{origin}: "chosen" and "rejected" answer different messages')
    key = "messages" if "prompt" not in record and "messages" in record else "prompt"
    if before:
        prompt: str | tuple[Message, ...] = _asking(origin, before, "chosen")
    elif isinstance(record.get(key), list):
        prompt = _asking(origin, _messages(origin, record[key], key), key)
    else:
        prompt = _text(origin, record, key)
    return Preference(origin, prompt, chosen, rejected)


def _answer(origin: str, record: Record, key: str) -> tuple[tuple[Message, ...], str]:
    """The messages before an answer, if any, and its text."""
    if not isinstance(record[key], list):
        return (), _text(origin, record, key)
    *before, last = _messages(origin, record[key], key)
    if last["role"] != "assistant" or "tool_calls" in last:
        raise ZooError(f'{origin}: "{key}" must end with a text of the assistant')
    return tuple(before), text_of(last)


def _asking(origin: str, messages: tuple[Message, ...], key: str) -> tuple[Message, ...]:
    """The messages of a prompt, of which the last is not the assistant's."""
    if messages[-1]["role"] not in ("user", "tool"):
        raise ZooError(f'{origin}: "{key}": no message of the user before the answer')
    return messages


def _conversation(origin: str, record: Record, key: str = "messages") -> Conversation:
    messages = _messages(origin, record[key], key)
    roles = [message["role"] for message in messages]
    if not any(message["role"] == "assistant" and message.get("weight") != 0 for message in messages):
        raise ZooError(f'{origin}: "{key}" has no message of the assistant to learn')
    if roles[0] == "assistant" or roles[:2] == ["system", "assistant"]:
        raise ZooError(
            f"{origin}: message {roles.index('assistant') + 1}: there is nothing to answer before it"
        )
    try:
        tools = declarations(record.get("tools") or ())
    except PromptError as error:
        raise ZooError(f"{origin}: {error}".replace("`tools`", '"tools"')) from None
    return Conversation(origin, messages, tuple(tools))


def _messages(origin: str, value: object, key: str) -> tuple[Message, ...]:
    """Checked messages; ZooError for a malformed one, an answer without a word, and a result that nobody asked for."""
    if not isinstance(value, list):
        raise ZooError(f'{origin}: "{key}" is no list of messages')
    if not value:
        raise ZooError(f'{origin}: "{key}" is empty')
    messages: list[Message] = []
    calling = False  # whether the message before may be followed by a tool's result
    for number, item in enumerate(value, 1):
        try:
            message = checked_message(item, number)
        except PromptError as error:
            raise ZooError(f"{origin}: {error}") from None
        if message["role"] == "assistant" and not (text_of(message).strip() or "tool_calls" in message):
            raise ZooError(f"{origin}: message {number}: the assistant says nothing")
        if message.get("weight", 0) not in (0, 1):
            raise ZooError(f'{origin}: message {number}: "weight" is neither 0 nor 1')
        if message["role"] == "tool" and not calling:
            raise ZooError(f"{origin}: message {number}: a tool's result without a call before it")
        calling = message["role"] == "tool" or "tool_calls" in message
        messages.append(message)
    return tuple(messages)


def _sharegpt(origin: str, record: Record) -> Conversation:
    """A conversation in ShareGPT's form; a message may also have a "role" and a "content"."""
    turns = record["conversations"]
    if isinstance(turns, list):
        turns = [_message(f"{origin}: message {number}", turn) for number, turn in enumerate(turns, 1)]
    return _conversation(origin, {**record, "conversations": turns}, "conversations")


def _message(origin: str, turn: object) -> Any:
    """The message of a turn with "from" and "value"; anything else as it is, to be checked like other messages."""
    if not isinstance(turn, dict) or "from" not in turn:
        return turn
    role = SPEAKERS.get(str(turn["from"]).lower())
    if role is None:
        raise ZooError(f'{origin}: "from" is none of {", ".join(SPEAKERS)}')
    weight = {"weight": turn["weight"]} if "weight" in turn else {}
    return {"role": role, "content": text_at(origin, turn, "value"), **weight}


def _alpaca(origin: str, record: Record) -> Completion:
    """An instruction and its output as prompt and completion; an input follows the instruction after a blank line."""
    prompt, output = (_text(origin, record, key) for key in ("instruction", "output"))
    given = "" if record.get("input") is None else text_at(origin, record, "input")
    return Completion(origin, f"{prompt}\n\n{given}" if given.strip() else prompt, output)


def _texts(kind: type[Example], *keys: str, optional: tuple[str, ...] = ()) -> Form:
    """The form of examples whose values are all texts; those that are `optional` may be missing or null."""

    def read(origin: str, record: Record) -> Example:
        given = (*keys, *(key for key in optional if record.get(key) is not None))
        return kind(origin, **{key: _text(origin, record, key) for key in given})

    return Form(kind, keys, read)


SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}

FORMS = (  # a line is of the first that fits; the first of a kind names it
    Form(Preference, ("chosen", "rejected"), _preference),
    _texts(Completion, "prompt", "completion"),
    Form(Conversation, ("messages",), _conversation),
    _texts(TranslationPair, "source", "target"),
    _texts(SentencePair, "anchor", "positive", optional=("negative",)),
    Form(Conversation, ("conversations",), _sharegpt),
    Form(Completion, ("instruction", "output"), _alpaca),
    _texts(TextExample, "text"),
)
