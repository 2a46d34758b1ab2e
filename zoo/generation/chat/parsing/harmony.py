"""Answers in gpt-oss' harmony format: messages with a header that names their channel and their recipient.

`<|channel|>analysis<|message|>…<|end|>` is thinking, `<|start|>assistant<|channel|>final<|message|>…` the answer, and
`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` a call.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re

from zoo.generation.chat.parsing.parser import Parsed, Parser
from zoo.generation.chat.tools import new_id, parse_model_json
from zoo.generation.loop.step import ToolCall

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
TOKENS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

_RECIPIENT = re.compile(r"(?:^|\s)to=functions\.([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_HEADER_STARTS = (CHANNEL, START, " to=")


class HarmonyParser(Parser):
    """Parser of harmony's messages. The prompt ends with `<|start|>assistant`, so an answer begins within a header."""

    def __init__(self, calls: bool) -> None:
        """`calls`: whether messages to functions are calls; otherwise they are text."""
        super().__init__(self._in_header)
        self._calls = calls
        self._header = self._channel = self._recipient = self._call = ""

    def _in_header(self, last: bool) -> bool:
        before, tag = self.take((MESSAGE,), last)
        self._header += before
        header = self._header
        if not any(header.startswith(start) or start.startswith(header) for start in _HEADER_STARTS):
            self.pending = header + (tag or "") + self.pending
            self._begin("", "")
            return True
        if tag is None:
            if last:
                self.parsed += Parsed(header)
            return False
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header.replace(CHANNEL, " "))
        self._begin(channel[1] if channel else "", recipient[1] if recipient and self._calls else "")
        return True

    def _begin(self, channel: str, recipient: str) -> None:
        self._channel, self._recipient, self._call = channel, recipient, ""
        self.state = self._in_message

    def _in_message(self, last: bool) -> bool:
        """Within a message, or between two."""
        before, tag = self.take((START, CHANNEL, *ENDS), last)
        if self._recipient:
            self._call += before
            if tag or last:
                self._add_call()
        elif self._channel == "analysis":
            self.parsed += Parsed(thinking=before)
        else:
            self.parsed += Parsed(before)
        if tag is None:
            return False
        self._begin("", "")
        if tag in (START, CHANNEL):
            self._header, self.state = tag, self._in_header
        return True

    def _add_call(self) -> None:
        arguments = parse_model_json(self._call)
        if isinstance(arguments, dict):
            self.parsed += Parsed(calls=(ToolCall(new_id(), self._recipient, arguments),))
        else:
            self.parsed += Parsed(f"{self._header}{MESSAGE}{self._call}")
