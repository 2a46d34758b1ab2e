"""Two languages: which one a build is in, the few words that the parts write, and the way to the other."""

from __future__ import annotations

from typing import Any

from sphinx.util.osutil import relative_uri

from building.build_cache import DOCS

SAID = {
    "en": {"answer": "Answer", "code": "Code", "other": "中文"},
    "zh": {"answer": "答案", "code": "代码", "other": "English"},
}


def other_page(app: Any, page: str) -> str:
    """Where the same page is in the other language, as a path from the English root; without one, that language's home page."""
    chinese = app.config.zoo_language == "zh"
    made = page.startswith(tuple(app.config.zoo_generated))
    folder = DOCS if chinese else DOCS / "zh"
    there = made or (folder / f"{page}.md").is_file()
    name = page if there else "index"
    return name if chinese else f"zh/{name}"


def add_switch(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page's template the address of its other language."""
    if app.builder.format != "html":
        return
    language = app.config.zoo_language
    target = other_page(app, page)
    here = f"zh/{page}" if language == "zh" else page
    context["zoo_other"] = {
        "address": relative_uri(f"{here}.html", f"{target}.html"),
        "name": SAID[language]["other"],
        "language": "en" if language == "zh" else "zh-CN",
    }


def setup(app: Any) -> None:
    """Add the setting and the switch."""
    app.add_config_value("zoo_language", "en", "env", [str])
    app.add_config_value("zoo_generated", [], "html", [list])
    app.connect("html-page-context", add_switch)
