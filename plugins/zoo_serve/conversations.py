"""`Conversations`: the tokens of earlier answers, so that the next turn of a conversation finds its KV caches."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.generation.chat.session import Transcript
from zoo.generation.loop.step import ToolCall
from zoo.tokenizer import Tokenizer
from zoo.tokenizer.chat_messages import arguments_of, text_of

MOST = 256  # answers whose tokens are remembered
Messages = Sequence[Mapping[str, Any]]


class Conversations:
    """Encodes the prompts of conversations. An earlier answer is encoded with the tokens that the model generated.

    An answer is found by the messages up to and including it, so that what others ask never changes how a prompt is
    encoded. Threads may share it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[bytes, Transcript] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, messages: Messages, text: str) -> list[int]:
        """The ids of a conversation that the chat template rendered as `text`."""
        keys = _keys(messages[:-1])
        ends = (key for key, message in zip(keys, messages, strict=False) if message["role"] == "assistant")
        with self._lock:
            known = [transcript for key in ends if (transcript := self._known.get(key)) is not None]
        transcript = known[-1] if known else None
        if transcript is not None:
            return transcript.encode(text)
        return self._tokenizer.encode(text, special_tokens=False)

    def add(self, messages: Messages, answer: str, calls: Iterable[ToolCall], ids: Sequence[int]) -> None:
        """Remember the ids of a conversation's prompt and of the answer to it."""
        message = {"role": "assistant", "content": answer, "tool_calls": [call.to_json() for call in calls]}
        transcript = Transcript(self._tokenizer)
        transcript.add(ids)
        key = _keys([*messages, message])[-1]
        with self._lock:
            self._known[key] = transcript
            if len(self._known) > MOST:
                self._known.popitem(last=False)


def _keys(messages: Messages) -> list[bytes]:
    """What tells the beginnings of a conversation apart, of one message, of two, and so on: roles, texts and calls."""
    digest, keys = hashlib.blake2b(), []
    for message in messages:
        calls = [[call["function"]["name"], arguments_of(call)] for call in message.get("tool_calls") or ()]
        digest.update(json.dumps([message["role"], text_of(message), calls], sort_keys=True).encode())
        keys.append(digest.digest())
    return keys
