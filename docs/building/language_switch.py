"""Two languages: which one a build is in, the few words that the parts write, and the way to the other."""

from __future__ import annotations

from typing import Any

from sphinx.util.osutil import relative_uri

from building.build_cache import DOCS

SAID = {
    "en": {"answer": "Answer", "code": "Code", "other": "中文", "only": "This page is in Chinese only"},
    "zh": {"answer": "答案", "code": "代码", "other": "English", "only": "本页仅有英文"},
}
OTHER = {"en": "zh", "zh": "en"}
TAGS = {"en": "en", "zh": "zh-CN"}  # of languages in HTML


def other_page(app: Any, page: str) -> tuple[str, bool]:
    """Where the same page is in the other language, as a path from the English root, and whether it is the same page.

    Without one it is the nearest first page of a section that the other language has.
    """
    chinese = app.config.zoo_language == "zh"
    folder = DOCS if chinese else DOCS / "zh"
    made = page.startswith(tuple(app.config.zoo_generated))
    same = made or (folder / f"{page}.md").is_file()
    name = page if same else nearest(page, lambda one: (folder / f"{one}.md").is_file())
    return (name if chinese else f"zh/{name}"), same


def nearest(page: str, exists: Any) -> str:
    """The first page of the innermost section around `page` for which `exists` is true, else the first of all."""
    section = page
    while section:
        section = section.rpartition("/")[0]
        found = f"{section}/index".lstrip("/")
        if found != page and exists(found):
            return found
    return "index"


def add_switch(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the page's template the address of its other language."""
    if app.builder.format != "html":
        return
    language = app.config.zoo_language
    target, same = other_page(app, page)
    here = f"zh/{page}" if language == "zh" else page
    context["zoo_other"] = {
        "address": relative_uri(f"{here}.html", f"{target}.html"),
        "name": SAID[language]["other"],
        "language": TAGS[OTHER[language]],
        "only": "" if same else SAID[OTHER[language]]["only"],
    }


def setup(app: Any) -> None:
    """Add the setting and the switch."""
    app.add_config_value("zoo_language", "en", "env", [str])
    app.add_config_value("zoo_generated", [], "html", [list])
    app.connect("html-page-context", add_switch)
