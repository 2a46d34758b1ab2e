"""Formats that write a call as XML elements, one for each argument: the text between tags, typed by the declaration."""

from __future__ import annotations

import re
from typing import Any

from zoo.frozen import Frozen, frozen
from zoo.generation.chat.formats.json_calls import in_json_string, json_calls
from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, names_of, parameters_of, properties_of
from zoo.generation.chat.values import typed_value
from zoo.generation.loop.step import ToolCall

CDATA = ("<![CDATA[", "]]>")


@frozen()
class XMLCalls(Frozen):
    """The syntax of calls that are XML elements. The fields are regular expressions.

    `call` begins a call and has a group "name"; `parameter` begins an argument and has a group "key" and, where the model
    states the type, a group "text", "true" or "string" for a string. `value_end` and `call_end` end them. An argument ends
    where another, or the end of the call, follows its `value_end`, which may occur within the value. `newlines`: a line
    break at each end of a value is layout. `cdata`: a value may be a CDATA section.
    """

    call: str
    call_end: str
    parameter: str
    value_end: str
    newlines: bool = False
    cdata: bool = False

    def parse(self, body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
        """The calls that are all of a text; None for any other text."""
        return self._scanned(body, tools)[0]

    def unfinished(self, body: str) -> bool:
        """Whether a text ends within the value of an argument."""
        return self._scanned(body, ())[1]

    def _scanned(self, body: str, tools: Tools) -> tuple[tuple[ToolCall, ...] | None, bool]:
        """What `parse` and `unfinished` return."""
        call, call_end = (re.compile(rf"\s*{pattern}\s*") for pattern in (self.call, self.call_end))
        parameter = re.compile(rf"\s*{self.parameter}")
        value_end = re.compile(
            rf"{self.value_end}(?=\s*(?:{self.parameter}|{self.call_end}|\Z))".replace("?P<", "?P<_")
        )
        calls: list[ToolCall] = []
        place = 0
        while place < len(body):
            if not (head := call.match(body, place)):
                return None, False
            schema, values = parameters_of(tools, head["name"]), {}
            properties = properties_of(schema)
            place = head.end()
            while begun := parameter.match(body, place):
                if not (ended := value_end.search(body, begun.end())):
                    return None, True
                key, text = begun["key"].strip(), self._text(body[begun.end() : ended.start()])
                is_text = begun.groupdict().get("text") in ("true", "string")
                values[key] = text if is_text else typed_value(text, properties.get(key), schema)
                place = ended.end()
            if not (closed := call_end.match(body, place)):
                return None, False
            place = closed.end()
            calls.append(made_call(head["name"], values))
        return tuple(calls) or None, False

    def _text(self, value: str) -> str:
        opening, closing = CDATA
        if self.cdata and value.startswith(opening) and value.endswith(closing):
            return value[len(opening) : -len(closing)]
        return value.removeprefix("\n").removesuffix("\n") if self.newlines else value


def _invoked(prefix: str, attributes: str = "") -> XMLCalls:
    """Calls written as elements `invoke` and `parameter`, with the names as attributes."""
    return XMLCalls(
        rf'<{prefix}invoke name="(?P<name>[^"]+)">',
        f"</{prefix}invoke>",
        rf'<{prefix}parameter name="(?P<key>[^"]+)"{attributes}>',
        f"</{prefix}parameter>",
    )


def _keyed(prefix: str = "", suffix: str = "", name_end: str = "") -> XMLCalls:
    """A name, then elements for the key and the value of each argument."""
    key, value, call = (f"{prefix}{name}{suffix}>" for name in ("arg_key", "arg_value", "tool_call"))
    return XMLCalls(
        rf"<{call}\s*(?P<name>[^\s<>{{}}\[\]\"]+){name_end}",
        f"</{call}",
        rf"<{key}(?P<key>[^<>]+)</{key}\s*<{value}",
        f"</{value}",
    )


def _tagged(opening: str, closing: str, calls: XMLCalls, **more: Any) -> TaggedCalls:
    return TaggedCalls(((opening, closing),), calls.parse, calls.unfinished, **more)


_FUNCTION = XMLCalls(
    r"<function=(?P<name>[^>\s]+)>",
    "</function>",
    r"<parameter=(?P<key>[^>\s]+)>",
    "</parameter>",
    newlines=True,
)
_MINICPM = XMLCalls(
    r'<function name="(?P<name>[^"]+)">',
    "</function>",
    r'<param name="(?P<key>[^"]+)">',
    "</param>",
    cdata=True,
)
_KIMI = XMLCalls(
    r'<\|open\|>call tool="(?P<name>[^"]+)"[^<]*<\|sep\|>',
    r"<\|close\|>call<\|sep\|>",
    r'<\|open\|>argument key="(?P<key>[^"]+)"(?: type="(?P<text>[^"]*)")?<\|sep\|>',
    r"<\|close\|>argument<\|sep\|>",
)
_HUNYUAN = _keyed(suffix=":opensource", name_end="<tool_sep:opensource>")
_DECLARED = r'(?: string="(?P<text>true|false)")?'


def _without_tags(text: str) -> str:
    return text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>").strip()


def _function(text: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """Qwen3-Coder's calls. Its models write JSON, too, and leave out the first tag."""
    body = _without_tags(text)
    return json_calls(body) if body.startswith("{") else _FUNCTION.parse(body, tools)


def _unfinished_function(text: str) -> bool:
    body = _without_tags(text)
    return in_json_string(body) if body.startswith("{") else _FUNCTION.unfinished(body)


def _named(opening: str, closing: str, calls: XMLCalls, **more: Any) -> TaggedCalls:
    """Calls by a name between tags. One without arguments may be any word: it is a call if it names a declared tool."""

    def parse(text: str, tools: Tools) -> tuple[ToolCall, ...] | None:
        found = calls.parse(text, tools)
        known = names_of(tools)
        return found if found and all(call.arguments or call.name in known for call in found) else None

    return TaggedCalls(((opening, closing),), parse, calls.unfinished, keeps_tags=True, **more)


QWEN_CODER = TaggedCalls(
    (("<tool_call>", "</tool_call>"), ("<function=", "</function>")),
    _function,
    _unfinished_function,
    keeps_tags=True,
    stray_tags=("</tool_call>",),
)
SEED = _tagged("<seed:tool_call>", "</seed:tool_call>", _FUNCTION, thinking=("<seed:think>", "</seed:think>"))
GLM = _named("<tool_call>", "</tool_call>", _keyed())
LONGCAT = _named(
    "<longcat_tool_call>",
    "</longcat_tool_call>",
    _keyed("longcat_"),
    thinking=("<longcat_think>", "</longcat_think>"),
)
HUNYUAN = _tagged(
    "<tool_calls:opensource>",
    "</tool_calls:opensource>",
    _HUNYUAN,
    thinking=("<think:opensource>", "</think:opensource>"),
)
MINIMAX_M2 = _tagged("<minimax:tool_call>", "</minimax:tool_call>", _invoked(""))
DSML = TaggedCalls(
    (
        ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
        ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ),
    _invoked("｜DSML｜", _DECLARED).parse,
    _invoked("｜DSML｜", _DECLARED).unfinished,
    more_tokens=("｜DSML｜",),
)
KIMI_K3 = _tagged(
    "<|open|>tools<|sep|>",
    "<|close|>tools<|sep|>",
    _KIMI,
    thinking=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    layout_tags=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
    ),
)
MINICPM = _tagged("<function name=", "</function>", _MINICPM, keeps_tags=True)
