"""Models side by side: `{comparer}`, where a person chooses two to four, and `{compare}`, where the page has chosen.

The cards of all architectures and their presets are written beside the pages, and fetched as a page asks for them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes

from building import code
from building.kept import DOCS, kept
from building.pieces import ZooDirective, html

FOLDER = "compare"  # within _static
FIRST = ("llama:8b", "mixtral:8x7b")  # what the picker begins with
RECORD = DOCS / "records" / "pockets.json"
SMALL = "tiny"  # a preset of conformance checks, which has nothing to say to a reader


@cache
def models() -> dict[str, Any]:
    """All models that can be chosen, described, by name: each architecture's full-size preset first."""
    from zoo.facts import describe
    from zoo.host.registry import default_registry

    registry = default_registry()
    found = {}
    for name, architecture in registry.architectures.items():
        full = architecture.full_size
        presets = sorted(architecture.presets, key=lambda preset: preset is not full)
        for preset in presets:
            if preset.config is not None and preset.name != SMALL:
                one = describe(f"{name}:{preset.name}", registry)
                found[one.origin] = one
    return found


@cache
def record() -> dict[str, Any]:
    """What was measured of the small checkpoints; nothing where there is no record."""
    if not RECORD.is_file():
        return {}
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def cards(language: str) -> list[dict[str, Any]]:
    """The card of each model, in a language."""
    from zoo.host.registry import default_registry
    from zoo.insight.pages.compare_card import card, with_words, words_between
    from zoo.insight.pocket import pocket_facts

    found, registry = models(), default_registry()
    words = kept(lambda: words_between(found), "words between models")
    measured = record().get("pockets", {})

    def made() -> list[dict[str, Any]]:
        return [
            with_words(
                card(
                    one,
                    registry,
                    language=language,
                    pocket=pocket_facts(one.architecture, measured.get(one.architecture.name)),
                ),
                words[name],
                language,
            )
            for name, one in found.items()
        ]

    every: list[dict[str, Any]] = kept(made, "cards", language, json.dumps(measured))
    return every


def code_pages(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The table of code, with which of its files have a page here."""
    pages = {path.as_posix() for path in code.files()}
    return {name: one | {"page": one["file"] in pages} for name, one in table.items()}


def write_cards(outdir: Path, language: str) -> None:
    """Write the script, the styles, the cards and the code that they name into `_static/compare`."""
    from zoo.host.registry import default_registry
    from zoo.insight.pages.compare import about_record, app_script, app_style
    from zoo.insight.pages.compare_card import code_table
    from zoo.insight.pages.page import as_data

    folder = outdir / "_static" / FOLDER
    (folder / "cards").mkdir(parents=True, exist_ok=True)
    about = about_record(record(), language)
    (folder / "compare.js").write_text(app_script(language, record=about), encoding="utf-8")
    within = (Path(__file__).parent / "comparing.css").read_text(encoding="utf-8")
    (folder / "compare.css").write_text(app_style() + within, encoding="utf-8")
    for one in cards(language):
        path = folder / "cards" / f"{one['name'].replace(':', '.')}.js"
        path.write_text(f"zooCompare.card({as_data(one)});\n", encoding="utf-8")
    table = kept(lambda: code_pages(code_table(models().values(), default_registry())), "code of models")
    (folder / "cards" / "code.js").write_text(f"zooCompare.code = {as_data(table)};\n", encoding="utf-8")


class Compare(ZooDirective):
    """The comparison of the models that are named, or the page of one."""

    required_arguments = 1
    final_argument_whitespace = True

    def names(self) -> list[str]:
        """The names of the models that it begins with."""
        from zoo.facts import describe
        from zoo.host.registry import default_registry

        registry = default_registry()
        return [describe(name, registry).origin for name in self.arguments[0].split()]

    def more(self) -> dict[str, Any]:
        """What the script is told besides."""
        depth = self.env.docname.count("/")
        return {
            "folder": f"{'../' * depth}_static/{FOLDER}/cards/",
            "files": f"{'../' * (depth + (self.language == 'zh'))}code/",
            "level": 3,
        }

    def made(self) -> list[nodes.Node]:
        from zoo.host.registry import default_registry
        from zoo.insight.pages.compare import app_element

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
        from zoo.insight.pages.compare import choices

        return super().more() | {"models": choices(models().values(), self.language), "level": 2}


def add_files(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page that compares the script and the styles."""
    if 'class="zoo-compare"' in context.get("body", ""):
        app.add_js_file(f"{FOLDER}/compare.js", defer="defer")
        app.add_css_file(f"{FOLDER}/compare.css")


def write(app: Any, error: Exception | None) -> None:
    """Write what the pages ask for."""
    if error is None and app.builder.format == "html":
        write_cards(Path(app.outdir), app.config.zoo_language)


def setup(app: Any) -> None:
    """Add the directives and what they need."""
    app.add_directive("compare", Compare)
    app.add_directive("comparer", Comparer)
    app.connect("html-page-context", add_files)
    app.connect("build-finished", write)
