"""Models side by side: `{comparer}`, where a person chooses two to four, and `{compare}`, where the page has chosen.

The cards of all architectures and their presets are written beside the pages, and fetched as a page asks for them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

from building import code_pages, compare_cards
from building.build_cache import DOCS
from building.compare_cards import CODE, FOLDER, models, write_cards, write_code
from building.directive import ZooDirective, html

FIRST = ("llama:8b", "mixtral:8x7b")  # what the picker begins with


class Compare(ZooDirective):
    """The comparison of the models that are named, or the page of one."""

    required_arguments = 1
    final_argument_whitespace = True

    def names(self) -> list[str]:
        """The names of the models that it begins with."""
        from zoo.describe import describe
        from zoo.host.registry import default_registry

        registry = default_registry()
        return [describe(name, registry).origin for name in self.arguments[0].split()]

    def more(self) -> dict[str, Any]:
        """What the script is told besides."""
        depth = self.env.docname.count("/")
        top, english = "../" * depth, "../" * (depth + (self.language == "zh"))
        return {
            "folder": f"{top}_static/{FOLDER}/cards/",
            "code": f"{english}_static/{FOLDER}/{CODE}",
            "files": f"{english}code/",
            "level": 3,
        }

    def made(self) -> list[nodes.Node]:
        from zoo.describe.pages.comparison import app_element
        from zoo.host.registry import default_registry

        found = models()
        chosen = [found[name] for name in self.names()]
        made = app_element(chosen, default_registry(), language=self.language, more=self.more())
        return [html(made)]


class Comparer(Compare):
    """The comparison in which a person chooses."""

    required_arguments = 0

    def names(self) -> list[str]:
        return list(FIRST)

    def more(self) -> dict[str, Any]:
        from zoo.describe.pages.comparison import choices

        return super().more() | {"models": choices(models().values(), self.language), "level": 2}


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page that compares the script and the styles."""
    if 'class="zoo-compare"' in context.get("body", ""):
        app.add_js_file(f"{FOLDER}/compare.js", defer="defer")
        app.add_css_file(f"{FOLDER}/compare.css")


def begin(app: Any) -> None:
    """Let another process make the cards, which takes a minute, while this one reads the pages."""
    command = [sys.executable, "-m", compare_cards.__name__, app.config.zoo_language]
    app.zoo_cards = subprocess.Popen(command, cwd=DOCS)


def write(app: Any, error: Exception | None) -> None:
    """Write what the pages ask for."""
    app.zoo_cards.wait()  # had it failed, what it did not make is made here
    if error is None and app.builder.format == "html":
        write_cards(Path(app.outdir), app.config.zoo_language)
        if app.config.zoo_language == "en":  # code has no language
            write_code(Path(app.outdir), {path.as_posix() for path in code_pages.files()})


def setup(app: Any) -> None:
    """Add the directives and what they need."""
    app.add_directive("compare", Compare)
    app.add_directive("comparer", Comparer)
    app.connect("html-page-context", add_files)
    app.connect("builder-inited", begin)
    app.connect("build-finished", write)
