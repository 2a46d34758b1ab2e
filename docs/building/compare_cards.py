"""The cards of all models that a page may compare, and the files that these pages ask for. Needs no Sphinx."""

from __future__ import annotations

import json
from collections.abc import Set
from functools import cache
from pathlib import Path
from typing import Any

from building.build_cache import DOCS, cached_result
from building.card_texts import pack

FOLDER = "compare"  # within _static
RECORD = DOCS / "records" / "pockets.json"
CODE = "code.js"
SMALL = (
    "tiny",
    "pocket",
)  # begin the names of presets to check and to train, which say little where no checkpoint has them


@cache
def models() -> dict[str, Any]:
    """All models that can be chosen, described, by name: each architecture's full-size preset first."""
    from zoo.describe import describe
    from zoo.host.registry import default_registry

    registry = default_registry()
    found = {}
    for name, architecture in registry.architectures.items():
        full = architecture.full_size
        presets = sorted(architecture.presets, key=lambda preset: preset is not full)
        for preset in presets:
            if preset.config is not None and (preset.embedded or not preset.name.startswith(SMALL)):
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


def words_of() -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """The differences of each model from each other as `words_between` gives them, and each sentence by language."""
    from zoo.describe.language import LANGUAGES
    from zoo.describe.pages.model_card import words_between

    made = cached_result(lambda: words_between(models(), LANGUAGES), "words between models, by language")
    words = {
        name: {other: [(text, of_sizes) for text, of_sizes in told] for other, told in row.items()}
        for name, row in made["en"].items()
    }
    said = {
        language: {
            text: translated
            for name, row in words.items()
            for other, told in row.items()
            for (text, _), (translated, _) in zip(told, made[language][name][other], strict=True)
        }
        for language in LANGUAGES
    }
    return words, said


def cards(language: str) -> list[dict[str, Any]]:
    """The card of each model in a language, without the words between models."""
    from zoo.describe.described import pocket_facts
    from zoo.describe.pages.model_card import card
    from zoo.host.registry import default_registry

    found, registry = models(), default_registry()
    measured = record().get("pockets", {})

    def made() -> list[dict[str, Any]]:
        return [
            card(
                one,
                registry,
                language=language,
                pocket=pocket_facts(one.architecture, measured.get(one.architecture.name)),
            )
            for one in found.values()
        ]

    every: list[dict[str, Any]] = cached_result(made, "cards", language, json.dumps(measured))
    return every


def code_behind() -> dict[str, dict[str, Any]]:
    """The code that the cards name."""
    from zoo.describe.pages.model_card import code_table
    from zoo.host.registry import default_registry

    table: dict[str, dict[str, Any]] = cached_result(
        lambda: code_table(models().values(), default_registry()), "code of models"
    )
    return table


def write_style(outdir: Path) -> None:
    """Write the styles into `_static/compare`."""
    from zoo.describe.pages.comparison import app_style

    folder = outdir / "_static" / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    within = (Path(__file__).parent / "compare.css").read_text(encoding="utf-8")
    (folder / "compare.css").write_text(app_style() + within, encoding="utf-8")


def write_cards(outdir: Path) -> None:
    """Write the cards, and the script of each language with the texts of the cards, into `_static/compare`."""
    from zoo.describe.language import LANGUAGES
    from zoo.describe.pages.comparison import about_record, app_script
    from zoo.describe.pages.model_card import shared_words, with_words
    from zoo.describe.pages.template import as_data

    words, said = words_of()
    shared = shared_words(words)

    def translated(one: dict[str, Any], language: str) -> dict[str, Any]:
        return one | {"sentences": [said[language][text] for text in one["sentences"]]}

    packed, table = pack(
        [
            {
                "shared": translated(shared, language),
                "cards": [
                    translated(with_words(one, words[one["name"]], shared), language)
                    for one in cards(language)
                ],
            }
            for language in LANGUAGES
        ]
    )
    folder = outdir / "_static" / FOLDER
    (folder / "cards").mkdir(parents=True, exist_ok=True)
    unpack = (Path(__file__).parent / "card_texts.js").read_text(encoding="utf-8")
    for place, language in enumerate(LANGUAGES):
        before = [
            f"zooCompare.texts = {as_data([texts[place] for texts in table])};",
            unpack,
            f"zooCompare.shared = zooCompare.unpack({as_data(packed['shared'])});",
        ]
        script = app_script(language, record=about_record(record(), language), before=before)
        (folder / f"compare.{language}.js").write_text(script, encoding="utf-8")
    for one, whole in zip(packed["cards"], cards("en"), strict=True):
        path = folder / "cards" / f"{whole['name'].replace(':', '.')}.js"
        path.write_text(f"zooCompare.card({as_data(one)});\n", encoding="utf-8")


def write_code(outdir: Path, pages: Set[str] = frozenset()) -> None:
    """Write the code that cards name beside them.

    `pages` are the files of code, as paths from the root, that have a page of their own.
    """
    table = {name: one | {"page": one["file"] in pages} for name, one in code_behind().items()}
    path = outdir / "_static" / FOLDER / CODE
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f"zooCompare.code = {text};\n", encoding="utf-8")


if __name__ == "__main__":  # a process of its own makes them while Sphinx reads the pages
    from zoo.describe.language import LANGUAGES

    words_of()
    for language in LANGUAGES:
        cards(language)
    code_behind()
