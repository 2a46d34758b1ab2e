"""`Conversation`: the messages of a chat, in turns, and their file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import PromptError, SourceError
from zoo.files.reading import parse_json, read_user_text
from zoo.files.writing import is_stream, write_record
from zoo.generation.loop.step import ToolCall
from zoo.tokenizer import chat_messages
from zoo.tokenizer.chat_messages import Message, text_of

FILE_KEYS = ("generator", "messages", "settings")
ROLES = ("system", "user", "assistant", "tool")


class Conversation:
    """The messages of a conversation, in turns. A turn is a question and all messages up to the next question.

    `messages` have a role and a content, as `zoo.chat` takes them. The `system` message comes first and belongs to no
    turn. The oldest `dropped` turns stay in `messages`, but are not `active_messages`. PromptError, with its number, for
    a malformed message.

    >>> from zoo.generation.chat.conversation import Conversation
    >>> conversation = Conversation(system="Be brief.")
    >>> conversation.add_question("Name a river.")
    >>> conversation.add_answer("The Nile.")
    >>> conversation.turns, len(conversation.active_messages)
    (1, 3)
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]] = (), *, system: str | None = None) -> None:
        self.messages: list[Message] = [checked_message(m, n) for n, m in enumerate(messages, 1)]
        self.dropped = 0
        if system is not None:
            self.system = system

    @property
    def system(self) -> str | None:
        """The text of the system message; None without one, which an empty text sets it to."""
        first = self.messages[0] if self.messages else {}
        return text_of(first) if first.get("role") == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    @property
    def turns(self) -> int:
        """How many questions there are."""
        return len(self._starts())

    @property
    def active_messages(self) -> list[Message]:
        """The messages that the next prompt is made of: all but those of the dropped turns."""
        return self.without(self.dropped)

    def without(self, dropped: int) -> list[Message]:
        """The messages but those of the oldest `dropped` turns."""
        if not dropped:
            return list(self.messages)
        system = self.messages[:1] if self.system is not None else []
        starts = [*self._starts(), len(self.messages)]
        return [*system, *self.messages[starts[min(dropped, self.turns)] :]]

    def add_question(self, text: str) -> None:
        """Add a question. PromptError for an empty one."""
        if not text.strip():
            raise PromptError("the prompt is empty")
        self.messages.append({"role": "user", "content": text})

    def add_answer(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> None:
        """Add an answer. Its thinking has a key of its own: the template decides whether the model sees it again."""
        message: Message = {"role": "assistant", "content": text}
        if thinking:
            message["reasoning_content"] = thinking
        if calls:
            message["tool_calls"] = [call.to_json() for call in calls]
        self.messages.append(message)

    def undo(self) -> str:
        """Remove the last turn and return its question. PromptError when there is none."""
        start = self._last_question("take back")
        question = text_of(self.messages[start])
        del self.messages[start:]
        self.dropped = min(self.dropped, max(self.turns - 1, 0))
        return question

    def remove_answer(self) -> list[Message]:
        """Remove the answer to the last question, so that it can be answered again, and return it. PromptError without a question."""
        start = self._last_question("answer again") + 1
        answer = self.messages[start:]
        del self.messages[start:]
        return answer

    def save(self, path: Path, settings: Mapping[str, Any] | None = None) -> None:
        """Write the messages, and settings beside them, as JSON.

        PromptError when the file cannot be written, and when it exists and this method did not write it.
        """
        values = {"messages": self.messages, "settings": dict(settings or {})}
        try:
            write_record(path, values, None, indent=2)
        except SourceError as error:
            raise PromptError(str(error)) from error
        except (TypeError, ValueError) as error:
            raise PromptError(f"{path}: cannot be written ({error})") from error

    def _last_question(self, purpose: str) -> int:
        """The index of the last question; PromptError, saying for what it is needed, without one."""
        starts = self._starts()
        if not starts:
            raise PromptError(f"there is no question to {purpose}")
        return starts[-1]

    def _starts(self) -> list[int]:
        """The index of each question."""
        return [index for index, message in enumerate(self.messages) if message["role"] == "user"]


def load_conversation(path: Path) -> tuple[Conversation, dict[str, Any]]:
    """Read a file that `Conversation.save` wrote: the conversation, and its settings unchecked.

    PromptError names the file, and the malformed message.

    >>> from pathlib import Path
    >>> from zoo.generation.chat.conversation import Conversation, load_conversation
    >>> Conversation(system="Be brief.").save(Path("talk.json"), {"temperature": 0.5})
    >>> conversation, settings = load_conversation(Path("talk.json"))
    >>> conversation.system, settings
    ('Be brief.', {'temperature': 0.5})
    """
    if is_stream(path):
        raise PromptError(f"{path}: is not a file")
    try:
        values = parse_json(read_user_text(path, PromptError))
    except ValueError as error:
        raise PromptError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(values, dict) or not isinstance(values.get("messages"), list):
        raise PromptError(f'{path}: expected a JSON object with "messages", a list')
    settings = values.get("settings", {})
    if not isinstance(settings, dict):
        raise PromptError(f'{path}: "settings" must be an object')
    if unknown := next((key for key in values if key not in FILE_KEYS), None):
        raise PromptError(f"{path}: {json.dumps(unknown)[:60]} is no part of a conversation")
    try:
        return Conversation(values["messages"]), settings
    except PromptError as error:
        raise PromptError(f"{path}: {error}") from error


def checked_message(message: object, number: int) -> Message:
    """A message as `zoo.chat` takes it, in one of ROLES; PromptError, with its number, for anything else."""
    if not isinstance(message, Mapping) or message.get("role") not in ROLES:
        raise PromptError(
            f"message {number} must be an object with a role ({', '.join(ROLES)}) and a content"
        )
    if message["role"] == "system" and number > 1:
        raise PromptError(f"message {number}: a system message must be the first")
    return chat_messages.checked_message(message, f"message {number}", PromptError)
