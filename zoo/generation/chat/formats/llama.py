"""LLaMA's calls: JSON objects or a list of Python's calls, which may stand alone or after a tag."""

from __future__ import annotations

import re

import regex

from zoo.generation.chat.formats.json_calls import in_json_string, json_calls
from zoo.generation.chat.formats.python_calls import python_calls
from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call, names_of, parameters_of, parse_arguments, properties_of
from zoo.generation.loop.step import ToolCall

INTERPRETERS = ("python", "ipython", "code_interpreter")  # tools whose calls are written as code
_NAMED = re.compile(r"([^\s>]+)>\s*(\{.*)", re.DOTALL)
_BUILT_IN = re.compile(r"\s*([\w.]+)\.call(\(.*)", re.DOTALL)
_KEY = r'\{\s*"(?:name|type|function|parameters|arguments|id)"'
_START = regex.compile(rf"\s*(?:{_KEY}|\[\s*(?:{_KEY}|[A-Za-z_][\w.]*\s*\())")


def parse(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The calls, each of a declared tool; None for anything else."""
    built_in = _BUILT_IN.fullmatch(body)
    calls = json_calls(body) or python_calls("".join(built_in.groups()) if built_in else body)
    if calls and all(call.name in names_of(tools) for call in calls):
        return calls
    return None if built_in or may_be_calls(body) else tagged_call(body, tools)


def tagged_call(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """The call in the text after a tag: `NAME>` and JSON after `<function=`, code after the other tag."""
    if not (found := _NAMED.fullmatch(body)):
        return interpreter_call(body, tools)
    arguments = parse_arguments(found[2])
    return None if arguments is None else (made_call(found[1], arguments),)


def interpreter_call(code: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    """Code as a call of a declared interpreter with one parameter; None where there is none."""
    name = next((name for name in INTERPRETERS if name in names_of(tools)), None)
    properties = properties_of(parameters_of(tools, name)) if name else {}
    return (
        (made_call(name, {next(iter(properties)): code.strip()}),) if name and len(properties) == 1 else None
    )


def may_be_calls(answer: str) -> bool:
    """Whether an answer that begins like this may be calls: an object with a key of theirs, or a list."""
    return _START.match(answer, partial=True) is not None


LLAMA = TaggedCalls(
    (("<|python_tag|>", None), ("<|python_start|>", "<|python_end|>"), ("<function=", "</function>")),
    parse,
    in_json_string,
    may_be_calls,
)
