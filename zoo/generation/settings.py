"""What each setting of a generation may be: checked once, by name, before a strategy is called.

A setting that is not listed here is a plugin's own, and that plugin's to check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from zoo.errors import PromptError
from zoo.loading import Loaded

MOST = 2**31 - 1  # MLX counts in 32 bits
Check = Callable[[Any], Any]  # gives the value as the strategies take it; ValueError says what it must be


def whole(least: int, most: int = MOST) -> Check:
    """A whole number within bounds."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ValueError("a whole number")
        if int(value) < least:
            raise ValueError(f"at least {least}")
        if int(value) > most:
            raise ValueError(f"at most {most}")
        return int(value)

    return check


def number(value: Any) -> float:
    """A number that is not infinite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError("a finite number")
    return float(value)


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def name(value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ValueError("text")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A text, or several; empty ones are left out."""
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple) else None
    if found is None or not all(isinstance(text, str) for text in found):
        raise ValueError("a text or a list of texts")
    return tuple(text for text in found if text)


def alternatives(value: Any) -> bool | int:
    """True or False, or how many alternatives are wanted beside the chosen token."""
    if isinstance(value, bool):
        return value
    try:
        return whole(0)(value)
    except ValueError as error:
        raise ValueError(f"true, false or a number of alternatives, {error}") from None


CHECKS: Mapping[str, Check] = {
    "max_tokens": whole(1),
    "min_tokens": whole(0),
    "temperature": number,
    "top_k": whole(0, 2**63 - 1),
    "top_p": number,
    "min_p": number,
    "seed": whole(0, 2**64 - 1),
    "stop": texts,
    "logprobs": alternatives,
    "special_tokens": flag,
    "prefill_chunk": whole(1),
    "steps": whole(1),
    "block_length": whole(1),
    "beams": whole(-MOST),  # what they may be is in `Beams`, as for a generation_config.json
    "length_penalty": number,
    "source_language": name,
    "target_language": name,
}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the strategies take them, those left None left out; PromptError names one that cannot be."""
    found = {}
    for key, value in settings.items():
        if value is None:
            continue
        try:
            found[key] = CHECKS[key](value) if key in CHECKS else value
        except ValueError as error:
            raise PromptError(f"{key.replace('_', '-')} must be {error}, got {value!r:.60}") from None
    return found


def check_loaded(loaded: Any, call: str) -> None:
    """PromptError, saying how `call` is called, for anything but a loaded model."""
    if not isinstance(loaded, Loaded):
        what = f"zoo.load({loaded!r:.60})" if isinstance(loaded, str) else "zoo.load(…)"
        raise PromptError(
            f"zoo.{call} takes a loaded model first, got {type(loaded).__name__}: zoo.{call}({what}, …)"
        )
