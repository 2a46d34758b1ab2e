"""What the comparison of the docs is made of: cards in both languages, small enough, and the directives' elements."""

import json
import re
from pathlib import Path

import pytest
from building import compare_cards
from building.compare_cards import SMALL

from zoo.describe import describe
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


@pytest.fixture(scope="module", params=["en", "zh"])
def written(request, comparing, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    comparing.write_cards(folder, request.param)
    comparing.write_code(folder, {"plugins/zoo_llama/__init__.py"})
    return request.param, folder / "_static" / "compare"


def card(folder, name):
    text = (folder / "cards" / f"{name.replace(':', '.')}.js").read_text()
    return json.loads(re.fullmatch(r"zooCompare\.card\((.*)\);\n", text, re.S)[1])


def test_each_model_has_a_card_in_the_language(written):
    language, folder = written
    script = (folder / "compare.js").read_text()
    shared = json.loads(re.search(r"^zooCompare\.shared = (.*);$", script, re.M)[1])
    assert set(shared["names"]) == set(NAMES)
    for name in NAMES:
        one = card(folder, name)
        told = dict(zip(shared["names"], one["words"], strict=True))
        assert one["name"] == name and [other for other in NAMES if not told[other]] == [name]
        labels = " ".join(fact[2] for fact in one["facts"])
        assert bool(re.search("[\u4e00-\u9fff]", labels)) == (language == "zh")
        assert len((folder / "cards" / f"{name.replace(':', '.')}.js").read_bytes()) < 60_000


def test_the_code_says_which_files_have_a_page(written):
    _, folder = written
    text = (folder / "code.js").read_text()
    table = json.loads(re.fullmatch(r"zooCompare\.code = (.*);\n", text, re.S)[1])
    assert not table["zoo.blocks.attention:Attention"]["page"]
    assert table["zoo_llama:mistral"]["page"] and "sliding_window" in table["zoo_llama:mistral"]["html"]
    named = {name for one in NAMES for name in card(folder, one)["code"]["recipe"]}
    assert named <= set(table)


def test_a_pocket_shows_what_the_record_has(comparing, written):
    _, folder = written
    figures = comparing.record()["pockets"]["llama"]
    facts = {fact[0]: fact[3] for fact in card(folder, "llama:8b")["pocket"]}
    assert facts["bits"] == f"{figures['bits_per_byte']:.3f}"
    assert card(folder, "mistral:7b")["pocket"] == []


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
