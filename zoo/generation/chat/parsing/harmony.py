"""Answers in gpt-oss' harmony format: messages with a header that names their channel and who they are for.

`<|channel|>analysis<|message|>…<|end|>` is thinking, `<|start|>assistant<|channel|>final<|message|>…` the answer, and
`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` a call.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re

from zoo.generation.chat.parsing.parser import MarkedText, Parsed
from zoo.generation.chat.tools import ToolCall, json_of, new_id

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

_RECIPIENT = re.compile(r"(?:^|\s)to=functions\.([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_BEGINNINGS = (CHANNEL, START, " to=")  # of a header


class HarmonyParser:
    """Parser of harmony's messages; the prompt ends with `<|start|>assistant`, so an answer begins within a header."""

    def __init__(self, calls: bool) -> None:
        """`calls`: whether messages to functions are calls; otherwise they are text."""
        self._marked = MarkedText()
        self._calls = calls
        self._state = self._in_header
        self._header = ""
        self._channel = self._recipient = ""
        self._call = ""
        self._new: tuple[list[str], list[str], list[ToolCall]]

    def add(self, text: str) -> Parsed:
        """What is certain after more text."""
        self._marked.pending += text
        return self._advance(last=False)

    def finish(self) -> Parsed:
        """What was held back."""
        return self._advance(last=True)

    def _advance(self, last: bool) -> Parsed:
        self._new = [], [], []
        while self._state(last):
            pass
        texts, thoughts, calls = self._new
        return Parsed("".join(texts), "".join(thoughts), tuple(calls))

    # The states. Each takes what it can of what is pending, and says whether the next state has more to do.

    def _in_header(self, last: bool) -> bool:
        before, mark = self._marked.take((MESSAGE,), last)
        self._header += before
        header = self._header
        if not any(header.startswith(b) or b.startswith(header) for b in _BEGINNINGS):
            self._marked.pending = header + (mark or "") + self._marked.pending
            self._begin("", "")
            return True
        if mark is None:
            if last:
                self._new[0].append(header)
            return False
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header.replace(CHANNEL, " "))
        self._begin(channel[1] if channel else "", recipient[1] if recipient and self._calls else "")
        return True

    def _begin(self, channel: str, recipient: str) -> None:
        self._channel, self._recipient, self._call = channel, recipient, ""
        self._state = self._in_message

    def _in_message(self, last: bool) -> bool:
        """Within a message, or between two."""
        before, mark = self._marked.take((START, CHANNEL, *ENDS), last)
        if self._recipient:
            self._call += before
            if mark or last:
                self._end_call()
        else:
            texts, thoughts, _ = self._new
            (thoughts if self._channel == "analysis" else texts).append(before)
        if mark is None:
            return False
        self._begin("", "")
        if mark in (START, CHANNEL):
            self._header, self._state = mark, self._in_header
        return True

    def _end_call(self) -> None:
        arguments = json_of(self._call)
        if isinstance(arguments, dict):
            self._new[2].append(ToolCall(new_id(), self._recipient, arguments))
        else:
            self._new[0].append(f"{self._header}{MESSAGE}{self._call}")
