"""Texts of the lab's records in the languages of the site, from lab_words.toml. Needs no Sphinx."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

WORDS = Path(__file__).with_name("lab_words.toml")


@cache
def chinese() -> dict[str, Any]:
    """The Chinese texts."""
    return tomllib.loads(WORDS.read_text(encoding="utf-8"))


def word(text: str, language: str) -> str:
    """A short text of a record: the name of an arm, a label, a unit, a setting, a claim.

    ValueError for a text without Chinese.
    """
    if language == "en" or not text:
        return text
    found = chinese()
    if text in found["same"]:
        return text
    if text in found["texts"]:
        return str(found["texts"][text])
    for pattern, said in found["patterns"].items():
        if match := re.fullmatch(pattern, text):
            return match.expand(said)
    raise ValueError(f"no Chinese in {WORDS.name} for: {text}")


def axis_of(label: str, unit: str, language: str) -> str:
    """A label with its unit in brackets."""
    words = word(label, language)
    if not unit:
        return words
    brackets = "（{}）" if language == "zh" else " ({})"
    return words + brackets.format(word(unit, language))


def asked(experiment: str, part: str, english: str, language: str) -> str:
    """The question or the expectation of an experiment; `part` is "questions" or "expected"."""
    return english if language == "en" else str(chinese()[part][experiment])
