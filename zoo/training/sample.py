"""Samples during training: the model's completions of held-out texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import islice
from typing import Any

from zoo.generation import generate
from zoo.loading import Loaded

TOKENS = 20  # that a model adds
LONGEST = 60  # characters of a text to begin with
SHORTEST = 12
CHOICE = 8  # texts that take turns


def beginnings(documents: Iterable[Any], task: str) -> list[str]:
    """Prompts of the held-out texts: the first half of a line, the line with its last word hidden, or a source."""
    found: list[str] = []
    for document in islice(documents, 50):
        if task == "translate":
            found.append(document[0])
            continue
        lines = [line.strip() for line in document[:20_000].split("\n")]
        found += [cut(line) for line in lines if len(line) >= SHORTEST][
            : CHOICE if len(found) < CHOICE else 1
        ]
    return found[:CHOICE]


def cut(line: str) -> str:
    """About the first half of a line, up to a space where it has one."""
    half = line[: min(len(line) * 2 // 3, LONGEST)]
    before, space, _ = half.rpartition(" ")
    return before if space and len(before) >= len(half) // 2 else half


def sample(loaded: Loaded, prompt: str) -> str | None:
    """The prompt and its completion in one line; None where the model makes no text, or refuses this one."""
    try:
        return one_line(f"{prompt} → {made(loaded, prompt)}")
    except Exception:  # a plugin's strategy may raise anything, and what is only shown must not end a run
        return None


def made(loaded: Loaded, prompt: str) -> str:
    """The completion of a prompt: the likeliest tokens for a mask, a translation, or a continuation."""
    assert loaded.tokenizer is not None
    if loaded.architecture.task != "fill-mask":
        return generate(loaded, prompt, max_tokens=TOKENS).text
    mask = loaded.tokenizer.special_tokens.get("mask_token", "[MASK]")
    found = generate(loaded, f"{prompt} {mask}").candidates
    return " or ".join(str(candidate["text"]).strip() for candidate in found[:3])


def one_line(text: str) -> str:
    """The text with every run of white space, control and format characters as one space."""
    plain = "".join(" " if unicodedata.category(mark) in ("Cc", "Cf", "Zl", "Zp") else mark for mark in text)
    return " ".join(plain.split())
