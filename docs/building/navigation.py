"""The level of the headings above the lists of pages at the side: the theme says that they are headings, and not of which level."""

from __future__ import annotations

from typing import Any


def add_levels(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Say the level of each, without which a screen reader cannot place it."""
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> None:
    """Change the list after the theme has made it."""
    app.connect("html-page-context", add_levels, priority=900)
