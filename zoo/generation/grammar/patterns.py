"""Translates JSON Schema's regular expressions (ECMAScript) to the syntax of Rust's `regex`, which llguidance uses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from zoo.errors import PromptError

_SPACE = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_TOKEN = re.compile(r"\\c[A-Za-z]|\\.|[^\\]", re.DOTALL)
_ESCAPES = frozenset("dDwWnrtfvxupPkbB0123456789")
_ANY = r"[\x{0}-\x{10ffff}]"


def rust_pattern(pattern: str) -> str:
    r"""The same expression for llguidance; PromptError for an escape that ECMAScript does not have.

    White space, `.` and `[` within a class differ between the two.

    >>> print(rust_pattern(r"^[[\s]\cA.$"))
    ^[\[[\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]]\x{1}[^\n\r\x{2028}\x{2029}]$
    """
    found, within = [], False
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
        found.append(token)
    return "".join(found)


def pattern_of_others(texts: Iterable[str]) -> str:
    """An expression that matches every text but these.

    >>> pattern_of_others(["a"])
    '^(?:|[^a][\\\\x{0}-\\\\x{10ffff}]*|a(?:[\\\\x{0}-\\\\x{10ffff}]+))$'
    """
    return f"^{_others(list(texts))}$"


def _others(texts: list[str]) -> str:
    following = defaultdict(list)
    for text in texts:
        if text:
            following[text[0]].append(text[1:])
    firsts = {
        first: first if first.isascii() and first.isalnum() else rf"\x{{{ord(first):x}}}"
        for first in following
    }
    found = [] if "" in texts else [""]
    found.append(f"[^{''.join(firsts.values())}]{_ANY}*" if firsts else f"{_ANY}+")
    found += [firsts[first] + _others(rest) for first, rest in following.items()]
    return f"(?:{'|'.join(found)})"
