"""Harmony, gpt-oss' format: messages with headers in place of tags."""

from __future__ import annotations

import re

from zoo.generation.chat.parsing import CustomCalls, Parsed, Parser, Tools
from zoo.generation.chat.tools import made_call, names_of, parse_arguments

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
TOKENS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)

_RECIPIENT = re.compile(r"(?:^|\s)to=(functions\.)?([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_HEADER_STARTS = (CHANNEL, START, " to=")


class HarmonyParser(Parser):
    """Parser of gpt-oss' harmony format: messages with a header that names their channel and their recipient.

    `<|channel|>analysis<|message|>…<|end|>` is thinking, `<|start|>assistant<|channel|>final<|message|>…` the answer, and
    `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>` a call. The prompt ends with
    `<|start|>assistant`, so an answer begins within a header.
    Source: https://cookbook.openai.com/articles/openai-harmony
    """

    def __init__(self, tools: Tools) -> None:
        """Messages to functions are calls where `tools` are declared; otherwise they are text."""
        super().__init__(self._in_header)
        self._tools = names_of(tools)
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
        is_call = recipient and self._tools and (recipient[1] or recipient[2] in self._tools)
        if recipient and self._tools and not is_call and recipient[2] != "user":
            self.malformed.append(header + MESSAGE)
        self._begin(channel[1] if channel else "", recipient[2] if recipient and is_call else "")
        return True

    def _begin(self, channel: str, recipient: str) -> None:
        self._channel, self._recipient, self._call = channel, recipient, ""
        self.state = self._in_message

    def _in_message(self, last: bool) -> bool:
        """Within a message, or between two."""
        before, tag = self.take((START, CHANNEL, *ENDS), last)
        if self._recipient:
            self._call += before
            arguments = parse_arguments(self._call) if tag or last else None
            if arguments is not None:
                self.parsed += Parsed(calls=(made_call(self._recipient, arguments),))
            elif tag or last:
                self.malformed.append(f"{self._header}{MESSAGE}{self._call}")
                self.parsed += Parsed(self.malformed[-1])
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


HARMONY = CustomCalls(
    HarmonyParser,
    TOKENS,
    thinking=(f"{CHANNEL}analysis{MESSAGE}", ENDS[0]),
    header=f"{START}assistant",
)
