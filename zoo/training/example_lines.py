"""The examples of a file of JSON lines: the kind of a line is recognised by its keys, and its values are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    return _words(KEYS[kind])


def _words(keys: tuple[str, ...]) -> str:
    return " and ".join(f'"{key}"' for key in keys)


def _read(origin: str, record: Record) -> Example:
    """The example of a record: of the first kind all of whose keys it has."""
    for kind, keys in KEYS.items():
        if all(key in record for key in keys):
            return _READERS[kind](origin, record)
    for keys in KEYS.values():
        if any(key in record for key in keys):
            missing = next(key for key in keys if key not in record)
            raise ZooError(f'{origin}: has no "{missing}"')
    raise ZooError(f"{origin}: needs {', or '.join(map(_words, KEYS.values()))}")


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


def _conversation(origin: str, record: Record) -> Conversation:
    messages = _messages(origin, record["messages"], "messages")
    roles = [message["role"] for message in messages]
    if not any(message["role"] == "assistant" and message.get("weight") != 0 for message in messages):
        raise ZooError(f'{origin}: "messages" has no message of the assistant to learn')
    if roles[0] == "assistant" or roles[:2] == ["system", "assistant"]:
        raise ZooError(
            f"{origin}: message {roles.index('assistant') + 1}: there is nothing to answer before it"
        )
    try:
        tools = declarations(record.get("tools") or ())
    except PromptError as error:
        raise ZooError(f"{origin}: {error}".replace("`tools`", '"tools"')) from None
    return Conversation(origin, messages, tuple(tools))


def _messages(origin: str, value: Any, key: str) -> tuple[Message, ...]:
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


KEYS: dict[type[Example], tuple[str, ...]] = {
    Preference: ("chosen", "rejected"),
    Completion: ("prompt", "completion"),
    Conversation: ("messages",),
    TranslationPair: ("source", "target"),
    SentencePair: ("anchor", "positive"),
    TextExample: ("text",),
}


def _texts(kind: type[Example], *optional: str) -> Callable[[str, Record], Example]:
    """A reader of examples whose values are all texts; those that are `optional` may be missing or null."""

    def read(origin: str, record: Record) -> Example:
        keys = (*KEYS[kind], *(key for key in optional if record.get(key) is not None))
        return kind(origin, **{key: _text(origin, record, key) for key in keys})

    return read


_READERS: dict[type[Example], Callable[[str, Record], Example]] = {
    Preference: _preference,
    Completion: _texts(Completion),
    Conversation: _conversation,
    TranslationPair: _texts(TranslationPair),
    SentencePair: _texts(SentencePair, "negative"),
    TextExample: _texts(TextExample),
}
