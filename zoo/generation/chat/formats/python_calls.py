"""Formats whose calls are Python's: `[add(x=1), weather(city="Paris")]`. Nothing of them is run."""

from __future__ import annotations

import ast

from zoo.generation.chat.formats.json_calls import json_calls
from zoo.generation.chat.parsing import TaggedCalls, Tools
from zoo.generation.chat.tools import made_call
from zoo.generation.chat.values import ends_in_string, literal_of, parsed_python
from zoo.generation.loop.step import ToolCall


def python_calls(body: str) -> tuple[ToolCall, ...] | None:
    """The calls of Python code: a list of calls, or one a line; None for code that has anything else.

    Arguments must be literals with a name.
    """
    try:
        statements = parsed_python(body, "exec").body
        values = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
        nodes = [n for v in values for n in (v.elts if isinstance(v, ast.List | ast.Tuple) else [v])]
        if not nodes or len(values) < len(statements):
            return None
        return tuple(_call(node) for node in nodes)
    except (ValueError, RecursionError):
        return None


def _call(node: ast.expr) -> ToolCall:
    """The call of a node of a syntax tree; ValueError for any other node."""
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call with named arguments")
    arguments = {keyword.arg: literal_of(keyword.value) for keyword in node.keywords}
    if None in arguments:
        raise ValueError("an argument without a name")
    return made_call(ast.unparse(node.func), arguments)  # type: ignore[arg-type]


def _in_string(body: str) -> bool:
    return ends_in_string(body, "\"'")


def _either(body: str, tools: Tools) -> tuple[ToolCall, ...] | None:
    return python_calls(body) or json_calls(body)


LFM2 = TaggedCalls((("<|tool_call_start|>", "<|tool_call_end|>"),), _either, _in_string)
OLMO_3 = TaggedCalls((("<function_calls>", "</function_calls>"),), _either, _in_string)
