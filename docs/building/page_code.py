"""Runs the Python code of a page and returns what it prints. Needs no Sphinx."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from typing import Any

from building.build_cache import ROOT

ESCAPES = re.compile(r"\x1b\[[\d;]*m")  # colours of a terminal


def run(code: str, names: dict[str, Any]) -> str:
    """Run code as at a prompt: what it prints, and the value of its last line where that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<page>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
            if value is not None:
                print(repr(value))
    return ESCAPES.sub("", printed.getvalue()).replace(f"{ROOT}/", "")
