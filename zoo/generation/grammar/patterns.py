"""Translates JSON Schema's regular expressions (ECMAScript) to the syntax of Rust's `regex`, which llguidance uses."""

from __future__ import annotations

import re
from typing import Any

from zoo.errors import PromptError

_SPACE = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_TOKEN = re.compile(r"\\c[A-Za-z]|\\.|[^\\]", re.DOTALL)
_ESCAPES = frozenset("dDwWnrtfvxupPkbB0123456789")
_NOT_ONLY = re.compile(r"\^\(\?!\^?\[((?:[^\]\\^]|\\.)+)\]\*\$\)")


def rust_pattern(pattern: str) -> str:
    r"""The same expression for llguidance; PromptError for an escape that ECMAScript does not have.

    White space, `.` and `[` within a class differ between the two.

    >>> print(rust_pattern(r"^[[\s]\cA.$"))
    ^[\[[\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]]\x{1}[^\n\r\x{2028}\x{2029}]$
    """
    tokens, within = [], False
    for token in _TOKEN.findall(pattern):
        if token in (r"\s", r"\S"):
            token = f"[{'^' if token == chr(92) + 'S' else ''}{_SPACE}]"
        elif token.startswith(r"\c") and len(token) == 3:
            token = rf"\x{{{ord(token[2]) % 32:x}}}"
        elif token[0] == "\\" and token[1].isalnum() and token[1] not in _ESCAPES:
            raise PromptError(f"`json_schema`: {token} in the pattern {pattern!r:.60} is not ECMAScript's")
        elif token == "[" and not within:
            within = True
        elif token == "]":
            within = False
        elif within and token in "[&~":
            token = f"\\{token}"
        elif token == "." and not within:
            token = r"[^\n\r\x{2028}\x{2029}]"
        tokens.append(token)
    return "".join(tokens)


def pattern_keywords(pattern: str) -> dict[str, Any]:
    r"""The keywords of a pattern. pydantic's for `Decimal` begin by `(?!^[-+.]*$)`: not of these characters alone.

    >>> pattern_keywords(r"^(?!^[-+.]*$)[+-]?\d*\.?\d*$")
    {'pattern': '^[+-]?\\d*\\.?\\d*$', 'allOf': [{'pattern': '[^-+.]'}]}
    """
    if (found := _NOT_ONLY.match(pattern)) is None:
        return {"pattern": rust_pattern(pattern)}
    rest, other = f"^{pattern[found.end() :]}", f"[^{found[1]}]"
    return {"pattern": rust_pattern(rest), "allOf": [{"pattern": rust_pattern(other)}]}
