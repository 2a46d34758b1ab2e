"""404.html: what a server answers for an address that it does not have, from whichever folder that was.

A browser resolves the page's links from the address that was asked for. They therefore begin with the path of the site's
address, `html_baseurl`. Where that is not known they climb to the top of the host, which is right for a site that is there:
a browser stops climbing at the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from zoo.describe.diagram.svg import DARK, LIGHT, properties

CLIMBS = 8  # more than there are folders in any address of the site
PAGES = (
    ("index", "The first page"),
    ("tour/index", "The tour"),
    ("compare/index", "Compare models"),
    ("guides/index", "Guides"),
)
CHINESE_PAGES = (("zh/index", "首页"), ("zh/tour/index", "导览"), ("zh/compare/index", "架构对比"))
RULES = (
    "body{margin:0;background:var(--ground);color:var(--ink);font:1rem/1.6 system-ui,sans-serif}"
    "main{max-width:36rem;margin:0 auto;padding:3rem 1.2rem}a{color:var(--accent)}"
    "input,button{font:inherit;color:inherit;background:var(--box);border:1px solid var(--edge);border-radius:4px;"
    "padding:.2rem .5rem;max-width:100%;box-sizing:border-box}"
)


def root_of(base: str) -> str:
    """What the links begin with, for a site whose address is `base`, "" for one that is not known."""
    return f"{urlsplit(base).path.rstrip('/')}/" if base else "../" * CLIMBS


def style() -> str:
    """A small sheet of its own: the site's cannot be found from every address."""
    return f":root{{{properties(LIGHT)}}}@media (prefers-color-scheme:dark){{:root{{{properties(DARK)}}}}}{RULES}"


def pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page, for both languages; of the English build."""
    if app.config.zoo_language == "en":
        yield (
            "404",
            {
                "title": "Page not found",
                "root": root_of(app.config.html_baseurl),
                "style": style(),
                "pages": PAGES,
                "chinese_pages": CHINESE_PAGES,
            },
            "404.html",
        )


def setup(app: Any) -> None:
    """Add the page."""
    app.connect("html-collect-pages", pages)
