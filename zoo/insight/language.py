"""Texts of the zoo in the languages that its pages have. Imports no mlx."""

from __future__ import annotations


def in_language(text: str, language: str) -> str:
    """A text in a language, "en" or "zh"; itself where it has no other form."""
    return text
