"""The list of pages at the side: the pages of the section that one is in, and the first page of each other."""

from __future__ import annotations

from typing import Any

from furo.navigation import get_navigation_tree


def change(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Replace the theme's list, which has all pages on every page, and give its headings a level.

    The theme says that they are headings, and not of which level: a screen reader could not place them.
    """
    if "toctree" in context:
        found = context["toctree"](collapse=True, titles_only=True, maxdepth=-1, includehidden=True)
        tree = get_navigation_tree(found)
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> None:
    """Change the list after the theme has made it."""
    app.connect("html-page-context", change, priority=900)
