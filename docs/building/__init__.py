"""What these pages have beyond Sphinx: directives that run the zoo when the docs are built, and two languages."""

from __future__ import annotations

from typing import Any

from building import (
    answers,
    code,
    comparing,
    console,
    diagrams,
    drawings,
    facts,
    languages,
    maths,
    python,
    search,
    theme,
)

PARTS = (
    answers,
    code,
    comparing,
    console,
    diagrams,
    drawings,
    facts,
    languages,
    maths,
    python,
    search,
    theme,
)


def setup(app: Any) -> dict[str, Any]:
    """Add each part to Sphinx."""
    for part in PARTS:
        part.setup(app)
    return {"version": "1", "parallel_read_safe": False}
