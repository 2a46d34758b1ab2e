"""What the comparison of the docs is made of: cards in both languages, small enough, and the directives' elements."""

import functools
import json
import re
from pathlib import Path

import pytest
from building import compare_cards
from building.card_texts import without_numbers
from building.compare_cards import SMALL

from zoo.describe import describe
from zoo.describe.differences import differences, is_of_sizes
from zoo.describe.language import in_language
from zoo.describe.pages.model_card import card as model_card
from zoo.host.registry import default_registry

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("llama:8b", "mistral:7b", "llama:pocket")


@pytest.fixture(scope="module")
def every():
    """The names of all models of the docs."""
    return list(compare_cards.models())


@pytest.fixture(scope="module")
def comparing(every):
    """The part of the docs that compares, with few models."""
    found = {name: describe(name, default_registry()) for name in NAMES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_cards, "models", lambda: found)
        patch.setattr(compare_cards, "cached_result", lambda make, *key: make())
        yield compare_cards


@pytest.fixture(scope="module")
def written(comparing, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    comparing.write_cards(folder)
    comparing.write_code(folder, {"plugins/zoo_llama/__init__.py"})
    return folder / "_static" / "compare"


@pytest.fixture(scope="module")
def unpacked(browser, written):
    """What the script of a language makes of the cards: all of them, and what they share."""

    @functools.cache
    def read(language):
        page = browser.new_page()
        page.add_script_tag(path=written / f"compare.{language}.js")
        for path in sorted((written / "cards").iterdir()):
            page.add_script_tag(path=path)
        found = page.evaluate("[zooCompare.cards, zooCompare.shared]")
        page.close()
        return found

    return read


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_card_has_the_texts_of_each_language(written, unpacked, language):
    registry = default_registry()
    cards, shared = unpacked(language)
    assert list(cards) == sorted(NAMES) and set(shared["names"]) == set(NAMES)
    for name, one in cards.items():
        model = describe(name, registry)
        expected = model_card(model, registry, language=language)
        for key in ("facts", "pocket"):  # what is compared where the text is not enough is that of English
            one[key] = [[*fact[:4], fact[5]] for fact in one[key]]
            expected[key] = [[*fact[:4], fact[5]] for fact in expected[key]]
        assert one["pocket"] or name == "mistral:7b"
        assert {key: one[key] for key in expected if key != "pocket"} == {
            key: value for key, value in expected.items() if key != "pocket"
        }
        sentences = [*shared["sentences"], *one["sentences"]]
        for other, told in zip(shared["names"], one["words"], strict=True):
            said = differences(describe(other, registry).recipe, model.recipe)
            assert [sentences[index] for index in told] == [in_language(text, language) for text in said]
            sizes = [index in (*shared["sizes"], *one["sizes"]) for index in told]
            assert sizes == list(map(is_of_sizes, said))
        assert (written / "cards" / f"{name.replace(':', '.')}.js").stat().st_size < 30_000


def test_numbers_are_places_of_a_text_where_both_languages_have_them():
    texts = ("16 heads instead of 8 in layers 0, 8.", "第 0, 8 层有 16 个头，而不是 8 个")
    templates, numbers = without_numbers(texts)
    assert [template.format(*numbers) for template in templates] == list(texts)
    assert templates[0] == "{0} heads instead of {1} in layers {2}, {3}."
    assert without_numbers(("8.03 billion", "80.3 亿")) == (("8.03 billion", "80.3 亿"), [])


def test_the_code_says_which_files_have_a_page(written, unpacked):
    text = (written / "code.js").read_text()
    table = json.loads(re.fullmatch(r"zooCompare\.code = (.*);\n", text, re.S)[1])
    assert not table["zoo.blocks.attention:Attention"]["page"]
    assert table["zoo_llama:mistral"]["page"] and "sliding_window" in table["zoo_llama:mistral"]["html"]
    named = {name for one in NAMES for name in unpacked("en")[0][one]["code"]["recipe"]}
    assert named <= set(table)


def test_a_pocket_shows_what_the_record_has(comparing, unpacked):
    figures = comparing.record()["pockets"]["llama"]
    facts = {fact[0]: fact[3] for fact in unpacked("en")[0]["llama:8b"]["pocket"]}
    assert facts["bits"] == f"{figures['bits_per_byte']:.3f}"
    assert unpacked("en")[0]["mistral:7b"]["pocket"] == []


def test_an_architecture_begins_with_its_full_size(every):
    first = {}
    for name in every:
        first.setdefault(name.partition(":")[0], name)
    registry = default_registry()
    for name, architecture in registry.architectures.items():
        full = architecture.full_size
        if full.name.startswith(SMALL):  # no published model is known, and a page has none
            assert name not in first
            continue
        assert first[name] == f"{name}:{full.name}"
    assert not any(":tiny" in name for name in every)
