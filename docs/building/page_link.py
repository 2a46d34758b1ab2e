"""The role `{page}`: a link to another page in this language, else to the English one, which is marked as English.

As in {page}`the tutorial <plugins/tutorial>`, the page is named from the root, with an anchor if need be.
"""

from __future__ import annotations

import re
from html import escape

from docutils import nodes
from sphinx.util.docutils import SphinxRole
from sphinx.util.osutil import relative_uri

from building.build_cache import DOCS
from building.directive import html

MARK = "（英文）"
TARGET = re.compile(r"(.+?)\s*<([^<>#]+)(#[^<>]+)?>", re.DOTALL)


def link(here: str, text: str, language: str) -> str:
    """The link on the page `here` as HTML. ValueError for a text without a page, or a page that there is not."""
    found = TARGET.fullmatch(text)
    if found is None:
        raise ValueError("no page: write {page}`words <folder/page>`")
    words, page, anchor = found[1], found[2], found[3] or ""
    if not (DOCS / f"{page}.md").is_file():
        raise ValueError(f"there is no page {page}")
    own = language == "en" or (DOCS / "zh" / f"{page}.md").is_file()
    root = "zh/" if language == "zh" else ""
    target = f"{root}{page}" if own else page
    address = relative_uri(f"{root}{here}.html", f"{target}.html") + anchor
    if own:
        return f'<a class="reference internal" href="{escape(address)}">{escape(words)}</a>'
    mark = f'<span class="zoo-english">{MARK}</span>'
    return f'<a class="reference internal" href="{escape(address)}" hreflang="en">{escape(words)}{mark}</a>'


class PageRole(SphinxRole):
    """A link. Its failure is an error that names the page and the line."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            return [html(link(self.env.docname, self.text, str(self.config.zoo_language)))], []
        except ValueError as error:
            return [], [self.inliner.reporter.error(f"page: {self.text}: {error}", line=self.lineno)]


def setup(app: object) -> None:
    """Add the role."""
    app.add_role("page", PageRole())  # type: ignore[attr-defined]
