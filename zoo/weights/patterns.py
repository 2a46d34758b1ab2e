"""Patterns of tensor names, with placeholders, and their check when a rule is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from zoo.errors import PluginError

_OPEN = re.compile(r"\{(\w+)\}|(\*)|\[([^\]]*)\]")
_ESCAPED = re.compile(r"\\\{(\w+)\\\}|(\\\*)|\\\[(.*?)\\\]")  # the same after `re.escape`
REST = "rest"  # what `*` is called among the values of a match


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern, optional prefixes and placeholders included."""
    seen = set()

    def expression(match: re.Match[str]) -> str:
        name, rest, optional = match.groups()
        if name and name in seen:
            return f"(?P={name})"
        seen.add(name)
        return rf"(?P<{name}>[^.]+)" if name else rf"(?P<{REST}>.+)" if rest else f"(?:{optional})?"

    return re.compile(_ESCAPED.sub(expression, re.escape(pattern)))


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """The name that a pattern gives for these values, its optional prefix written."""

    def text(match: re.Match[str]) -> str:
        name, rest, optional = match.groups()
        return values[name] if name else values[REST] if rest else optional

    return _OPEN.sub(text, pattern)


def matches(pattern: str, tensors: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each tensor name that the pattern fits, with the values of its placeholders."""
    fits = matcher(pattern).fullmatch
    for name in list(tensors):
        if match := fits(name):
            yield name, match.groupdict()


def check_pattern(rule: object, pattern: object) -> frozenset[str]:
    """The placeholders of a pattern of `rule`: "{i}" and "*"; PluginError for an invalid pattern."""
    fault: object = "is no pattern: a tensor's name, in which {i}, * and [prefix.] may stand"
    if isinstance(pattern, str) and pattern:
        try:
            return _placeholders(pattern)
        except ValueError as error:
            fault = error
    raise PluginError(f"weight rule {rule!r}: {pattern!r} {fault}")


@lru_cache(maxsize=4096)  # families share most of theirs
def _placeholders(pattern: str) -> frozenset[str]:
    """The placeholders of a pattern; ValueError with the reason why it is invalid."""
    if stray := sorted(set("{}[]") & set(_OPEN.sub("", pattern))):
        raise ValueError(f"has a stray {stray[0]}")
    found: set[str] = set()
    for match in _OPEN.finditer(pattern):
        name, rest, optional = match.groups()
        if name and (not name.isidentifier() or name == REST):
            raise ValueError(f"has the placeholder {{{name}}}: a name is letters, and not {REST!r}")
        if rest and "*" in found:
            raise ValueError("has two *: the rest of a name is one")
        if optional is None:
            found.add(match[0])
        elif not optional.endswith(".") or not optional.strip(".") or set("{}*[") & set(optional):
            raise ValueError(f"has [{optional}]: a prefix that may be left out is plain and ends with a dot")
    return frozenset(found)


def check_pair(rule: object, source: object, target: object, only_source: str = "") -> None:
    """PluginError unless both patterns of `rule` have the same placeholders, except for `only_source`."""
    left, right = check_pattern(rule, source) - {only_source}, check_pattern(rule, target)
    for step in sorted(left ^ right):
        here, there = ("source", "target") if step in left else ("target", "source")
        raise PluginError(f"weight rule {rule!r}: {step} stands in its {here} and not in its {there}")
    if "[" in str(target):
        raise PluginError(
            f"weight rule {rule!r}: {target!r} is a parameter's path, of which nothing is left out"
        )
