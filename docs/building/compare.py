"""Models side by side: those that a page has chosen, and `{comparer}`, where a person chooses two to four.

The cards of all architectures and their presets, and the scripts of both languages, are written beside the English pages,
and fetched as a page asks for them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

from building import code_pages, compare_cards
from building.build_cache import DOCS
from building.compare_cards import CODE, FOLDER, models, write_cards, write_code, write_style
from building.directive import ZooDirective, html

FIRST = ("llama:8b", "mixtral:8x7b")  # what the picker begins with


def comparison(names: list[str], docname: str, language: str, choose: bool = False) -> str:
    """The comparison of the models that are named, or the page of one; with `choose`, a person may choose others."""
    from zoo.describe import describe
    from zoo.describe.pages.comparison import app_element, choices
    from zoo.host.registry import default_registry

    registry, found = default_registry(), models()
    chosen = [found[describe(name, registry).origin] for name in names]
    depth = docname.count("/")
    english = "../" * (depth + (language == "zh"))
    more: dict[str, Any] = {  # what the script is told besides
        "folder": f"{english}_static/{FOLDER}/cards/",
        "code": f"{english}_static/{FOLDER}/{CODE}",
        "files": f"{english}code/",
        "level": 2 if choose else 3,
    }
    if choose:
        more["models"] = choices(found.values(), language)
    return app_element(chosen, registry, language=language, more=more)


class Comparer(ZooDirective):
    """The comparison in which a person chooses."""

    def made(self) -> list[nodes.Node]:
        return [html(comparison(list(FIRST), self.env.docname, self.language, choose=True))]


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page that compares the script and the styles."""
    if 'class="zoo-compare"' in context.get("body", ""):
        language = app.config.zoo_language
        english = "../" * (page.count("/") + (language == "zh"))
        context["body"] += f'<script defer src="{english}_static/{FOLDER}/compare.{language}.js"></script>'
        app.add_css_file(f"{FOLDER}/compare.css")


def begin(app: Any) -> None:
    """Let another process make the cards, which takes a minute, while this one reads the pages."""
    if app.config.zoo_language == "en":
        app.zoo_cards = subprocess.Popen([sys.executable, "-m", compare_cards.__name__], cwd=DOCS)


def write(app: Any, error: Exception | None) -> None:
    """Write what the pages ask for: all but the style sheet once, beside the English pages."""
    if app.config.zoo_language == "en":
        app.zoo_cards.wait()  # had it failed, what it did not make is made here
    if error is None and app.builder.format == "html":
        write_style(Path(app.outdir))
        if app.config.zoo_language == "en":
            write_cards(Path(app.outdir))
            write_code(Path(app.outdir), {path.as_posix() for path in code_pages.files()})


def setup(app: Any) -> None:
    """Add the directive and what comparisons need."""
    app.add_directive("comparer", Comparer)
    app.connect("html-page-context", add_files)
    app.connect("builder-inited", begin)
    app.connect("build-finished", write)
