"""Numbers of presets for figures and pages, from the facts that `zoo show` prints."""

from __future__ import annotations

from functools import cache
from typing import Any

from zoo.describe import Sheet, describe
from zoo.describe.facts.fact import billions
from zoo.describe.language import in_language
from zoo.host.registry import default_registry

FEEDFORWARD = ("feed_forward", "routers", "experts")


@cache
def sheet(name: str, context: int | None = None) -> Sheet:
    """The facts of a preset ("llama:8b"), the cache and FLOPs at `context` tokens."""
    registry = default_registry()
    return describe(name, registry).sheet(registry, context)


def value(name: str, fact: str, context: int | None = None) -> Any:
    """The value of one fact; 0 where the preset has none of it."""
    return sheet(name, context).value(fact) or 0


def parameters(name: str, *parts: str) -> int:
    """The parameters of some parts of a preset together."""
    return sum(value(name, f"parameters.{part}") for part in parts)


def share(name: str, *parts: str) -> str:
    """The share of some parts in all parameters of a preset: "70 %"."""
    return f"{100 * parameters(name, *parts) / parameters(name, 'total'):.0f} %"


def counted(number: float, language: str) -> str:
    """A large count as a sentence has it: "46.7 billion", "467 亿"."""
    return in_language(billions(number), language)
