"""Links between languages: one from a Chinese page to an English page says that it leads to English.

In a Chinese page's file a link to an English page leads to its file, `[words](../../reference/formats.md)`. On the site it leads to
the English page and is marked, or to the Chinese page once there is one.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.util.osutil import relative_uri

from building.build_cache import DOCS

MARK = "（英文）"
ENGLISH = re.compile(
    r'<a(?P<before>(?: [^<>]*?)?) href="(?P<up>(?:\.\./)+)(?P<name>[\w/.-]+)\.html(?P<anchor>#[^"]*)?"(?P<after>[^<>]*)>'
    r"(?P<words>.*?)</a>",
    re.DOTALL,
)
LEAVING = re.compile(r"(?<!!)\[([^\]\[]+)\]\(((?:\.\./)+[\w/.-]+)\.md(#[^)\s]+)?\)")


def with_links(page: str, text: str) -> str:
    """The text of a Chinese page, its links to files of English pages as HTML. ValueError for a page that there is not."""
    folder = (DOCS / "zh" / page).parent

    def leave(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = (folder / f"{target}.md").resolve()
        if path.is_relative_to(DOCS / "zh"):
            return found[0]
        if not path.is_file() or not path.is_relative_to(DOCS):
            raise ValueError(f"{page}: there is no page {target}")
        return f'<a class="reference internal" href="{target}.html{anchor}">{words}</a>'

    return LEAVING.sub(leave, text)


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


def read_source(app: Any, page: str, source: list[str]) -> None:
    """Read a Chinese page so."""
    if app.config.zoo_language == "zh":
        source[0] = with_links(page, source[0])


def setup(app: object) -> None:
    """Add the links and the marks."""
    app.connect("source-read", read_source)  # type: ignore[attr-defined]
    app.connect("html-page-context", mark_links)  # type: ignore[attr-defined]
