"""Links between languages: one from a Chinese page to an English page says that it leads to English.

The role `{page}` links to a page in this language, else to the English one: in {page}`the tutorial <plugins/tutorial>` the
page is named from the root, with an anchor if need be. Other links from Chinese pages to English ones are marked, too, and
lead to the Chinese page once there is one.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole
from sphinx.util.osutil import relative_uri

from building.build_cache import DOCS
from building.directive import html

MARK = "（英文）"
ENGLISH = re.compile(
    r'<a(?P<before>(?: [^<>]*?)?) href="(?P<up>(?:\.\./)+)(?P<name>[\w/.-]+)\.html(?P<anchor>#[^"]*)?"(?P<after>[^<>]*)>'
    r"(?P<words>.*?)</a>",
    re.DOTALL,
)
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


def marked(page: str, body: str) -> str:
    """The HTML of a Chinese page with its links to English pages marked; those with a Chinese twin lead there."""

    def mark(found: re.Match[str]) -> str:
        up, name, anchor, words = found["up"], found["name"], found["anchor"] or "", found["words"]
        if up.count("../") <= page.count("/") or name.startswith(
            "code/"
        ):  # Chinese, or code, which has no language
            return found[0]
        rest = f"{found['before']}{found['after']}"
        if not anchor and (DOCS / "zh" / f"{name}.md").is_file():
            target = relative_uri(f"{page}.html", f"{name}.html")
            return f'<a{rest} href="{target}">{words.replace(MARK, "")}</a>'
        language = "" if "hreflang" in rest else ' hreflang="en"'
        mark = "" if MARK[1:-1] in words or "<svg" in words else f'<span class="zoo-english">{MARK}</span>'
        return f'<a{rest} href="{up}{name}.html{anchor}"{language}>{words}{mark}</a>'

    return ENGLISH.sub(mark, body)


def mark_links(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Mark the links of a Chinese page."""
    if app.config.zoo_language == "zh" and "body" in context:
        context["body"] = marked(page, context["body"])


class PageRole(SphinxRole):
    """A link. Its failure is an error that names the page and the line."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        try:
            return [html(link(self.env.docname, self.text, str(self.config.zoo_language)))], []
        except ValueError as error:
            return [], [self.inliner.reporter.error(f"page: {self.text}: {error}", line=self.lineno)]


def setup(app: object) -> None:
    """Add the role and the marks."""
    app.add_role("page", PageRole())  # type: ignore[attr-defined]
    app.connect("html-page-context", mark_links)  # type: ignore[attr-defined]
