"""The list of pages at the side: the pages of the section that one is in, and the first page of each other."""

from __future__ import annotations

import re
from typing import Any

# An architecture's page has its relatives; the list of all, longer than most pages, is that of the section's first page.
ARCHITECTURES = "architectures/"
SIBLING = re.compile(
    r'<li class="toctree-l2"><a class="reference internal" href="[\w.-]+\.html">[^<]*</a></li>\n?'
)


def collapse(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Let the theme make a list that is open at this page only: it would make one of all pages, for each page anew."""
    if "toctree" in context:
        whole = context["toctree"]
        context["toctree"] = lambda **options: whole(**options | {"collapse": True})


def finish(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the headings of the list a level, and leave an architecture's siblings out.

    The theme says that they are headings, and not of which level: a screen reader could not place them.
    """
    tree = context.get("furo_navigation_tree", "")
    if page.startswith(ARCHITECTURES) and page != f"{ARCHITECTURES}index":
        tree = SIBLING.sub("", tree)
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Any) -> None:
    """Change the list before and after the theme makes it."""
    app.connect("html-page-context", collapse, priority=400)
    app.connect("html-page-context", finish, priority=900)
