"""The patterns of weight rules: tensor names with placeholders. Imports no mlx.

`{i}` stands for one dotted step of a name, `*` for the rest of it, and `[model.]` for a prefix that some checkpoints
leave out. An invalid pattern is refused when the rule is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from zoo.errors import PluginError

_OPEN = re.compile(r"\{(\w+)\}|(\*)|\[([^\]]*)\]")
REST = "rest"  # what `*` is called among the values of a match


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern, optional prefixes and placeholders included."""
    parts, end, seen = [], 0, set()
    for match in _OPEN.finditer(pattern):
        parts.append(re.escape(pattern[end : match.start()]))
        name, rest, optional = match.groups()
        if name:
            parts.append(f"(?P={name})" if name in seen else rf"(?P<{name}>[^.]+)")
            seen.add(name)
        elif rest:
            parts.append(rf"(?P<{REST}>.+)")
        else:
            parts.append(f"(?:{re.escape(optional)})?")
        end = match.end()
    return re.compile("".join(parts) + re.escape(pattern[end:]))


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """The name that a pattern gives for these values, its optional prefix written."""

    def filled(match: re.Match[str]) -> str:
        name, rest, optional = match.groups()
        return values[name] if name else values[REST] if rest else optional

    return _OPEN.sub(filled, pattern)


def matches(pattern: str, tensors: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each tensor name that the pattern fits, with the values of its placeholders."""
    fits = matcher(pattern).fullmatch
    for name in list(tensors):
        if match := fits(name):
            yield name, match.groupdict()


def open_steps(rule: Any, pattern: Any) -> frozenset[str]:
    """The placeholders of a pattern of `rule`: "{i}" and "*"; PluginError for an invalid pattern."""
    if not isinstance(pattern, str) or not pattern:
        fault: str | None = "is no pattern: a tensor's name, in which {i}, * and [prefix.] may stand"
    else:
        found, fault = _opened(pattern)
    if fault is not None:
        raise PluginError(f"weight rule {rule!r}: {pattern!r} {fault}")
    return found


@lru_cache(maxsize=4096)  # families share most of theirs
def _opened(pattern: str) -> tuple[frozenset[str], str | None]:
    """The placeholders of a pattern, and the reason why it is invalid, if it is."""
    found: list[str] = []
    fault = None
    for match in _OPEN.finditer(pattern):
        name, rest, optional = match.groups()
        if name:
            if not name.isidentifier() or name == REST:
                fault = f"has the placeholder {{{name}}}: a name is letters, and not {REST!r}"
            found.append(f"{{{name}}}")
        elif rest:
            if "*" in found:
                fault = "has two *: the rest of a name is one"
            found.append("*")
        elif not optional.endswith(".") or optional.strip(".") == "" or set("{}*[") & set(optional):
            fault = f"has [{optional}]: a prefix that may be left out is plain and ends with a dot"
    stray = sorted(set("{}[]") & set(_OPEN.sub("", pattern)))
    if stray and fault is None:
        fault = f"has a stray {stray[0]}"
    return frozenset(found), fault


def check_pair(rule: Any, source: Any, target: Any, only_source: Callable[[str], bool] | None = None) -> None:
    """PluginError unless both patterns of `rule` have the same placeholders, except those that `only_source` allows."""
    left, right = open_steps(rule, source), open_steps(rule, target)
    if only_source is not None:
        left = frozenset(step for step in left if not only_source(step))
    for step in sorted(left ^ right):
        here, there = ("source", "target") if step in left else ("target", "source")
        raise PluginError(f"weight rule {rule!r}: {step} stands in its {here} and not in its {there}")
    if "[" in target:
        raise PluginError(
            f"weight rule {rule!r}: {target!r} is a parameter's path, of which nothing is left out"
        )
