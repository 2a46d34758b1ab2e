"""Functionary's calls: `<function=NAME>` and JSON, or messages to recipients."""

from __future__ import annotations

from zoo.generation.chat.formats.json_calls import in_json_string
from zoo.generation.chat.formats.llama import interpreter_call, tagged_call
from zoo.generation.chat.parsing import CustomCalls, Parsed, Parser, TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, names_of, parse_arguments

ALL, MARK = "all", ">>>"


class RecipientParser(Parser):
    """Parser of messages `>>>RECIPIENT`, a line break, and text for "all" or the arguments for a tool.

    The prompt ends with the first mark.
    """

    def __init__(self, tools: Tools) -> None:
        super().__init__(self._at_start)
        self._tools = tools
        self._recipients = {f"{MARK}{name}\n": name for name in (ALL, *names_of(tools))}
        self._recipient, self._call, self._header = ALL, "", ""

    def _at_start(self, last: bool) -> bool:
        headers = {**self._recipients, **{h.removeprefix(MARK): name for h, name in self._recipients.items()}}
        header = next((header for header in headers if self.pending.startswith(header)), None)
        if header is None and not last and any(header.startswith(self.pending) for header in headers):
            return False
        if header is not None:
            self.pending = self.pending[len(header) :]
            self._recipient, self._header = headers[header], header
        self.state = self._in_message
        return True

    def _in_message(self, last: bool) -> bool:
        before, header = self.take(self._recipients, last)
        if self._recipient == ALL:
            self.parsed += Parsed(before)
        else:
            self._call += before
            if header or last:
                self._end_call()
        if header is None:
            return False
        self._recipient, self._header = self._recipients[header], header
        return True

    def _end_call(self) -> None:
        arguments = parse_arguments(self._call)
        if arguments is not None:
            self.parsed += Parsed(calls=(made_call(self._recipient, arguments),))
        elif calls := interpreter_call(
            self._call, [t for t in self._tools if t["function"]["name"] == self._recipient]
        ):
            self.parsed += Parsed(calls=calls)
        else:
            self.parsed += Parsed(self._header + self._call)
            self.malformed.append(self._header + self._call)
        self._recipient, self._call = ALL, ""


TAGGED = TaggedCalls(
    (("<function=", "</function>"), ("<|python_tag|>", None)),
    tagged_call,
    in_json_string,
)
RECIPIENTS = CustomCalls(RecipientParser)
