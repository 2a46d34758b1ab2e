"""Cards: what each says of a model, and that what is left out can be put together again."""

import json
import os
import subprocess
import sys

import pytest

from zoo.describe import describe
from zoo.describe.differences import differences, is_of_sizes
from zoo.describe.pages.model_card import (
    card,
    code_table,
    recipe_lines,
    shared_words,
    with_words,
    words_between,
)
from zoo.host.registry import default_registry

MOST = 60_000  # bytes of a card


def described(*names):
    registry = default_registry()
    found = [describe(name, registry) for name in names]
    return {one.origin: one for one in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", default_registry().architectures)
def test_every_architecture_has_a_card_that_json_holds(name):
    registry = default_registry()
    found = describe(name, registry)
    one = card(found, registry)
    assert json.loads(json.dumps(one)) == one
    assert one["facts"] and one["stacks"] and one["recipe"] and one["weights"]
    assert len(json.dumps(one, ensure_ascii=False).encode()) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", default_registry().architectures)
def test_every_box_of_a_block_has_its_code(name):
    registry = default_registry()
    found = describe(name, registry)
    one, table = card(found, registry), code_table([found], registry)

    def boxes(items):
        for item in items:
            yield item
            yield from boxes(item.get("items", ()))

    drawn = [item for stack in one["stacks"] for item in boxes(stack["items"]) if item["kind"] != "residual"]
    assert drawn
    for item in drawn:
        known = one["code"]["blocks"][item["block"]]
        assert table[known["code"]]["html"], item["title"]
        for part in known["parts"]:
            assert part in one["code"]["blocks"]


def test_a_variant_is_the_lines_that_its_base_does_not_have():
    registry = default_registry()
    llama, mistral = (card(found, registry) for found in described("llama", "mistral").values())
    own = set(mistral["code"]["recipe"]) - set(llama["code"]["recipe"])
    assert own == {"zoo_llama:mistral", "zoo_llama:sliding_window"}
    assert "zoo_llama:llama" in mistral["code"]["recipe"]
    assert mistral["base"] == {"name": "llama", "sentences": ["Attention sees a window of 4,096 tokens."]}


@pytest.mark.parametrize("least", [1, 2, 9])
def test_words_are_those_between_any_two(least):
    found = described("llama", "mixtral", "t5")
    words = words_between(found)["en"]
    shared = shared_words(words, least)
    assert bool(shared["sentences"]) == (least < 9)
    for name, one in found.items():
        whole = with_words({}, words[name], shared)
        every = [*shared["sentences"], *whole["sentences"]]
        assert bool(whole["sentences"]) == (least > 1)
        for other, base in found.items():
            told = whole["words"][shared["names"].index(other)]
            if other == name:
                assert told == []
            else:
                assert [every[index] for index in told] == differences(base.recipe, one.recipe)
                of_sizes = [index in (*shared["sizes"], *whole["sizes"]) for index in told]
                assert of_sizes == [is_of_sizes(every[index]) for index in told]


def test_every_process_numbers_the_shared_words_alike():
    code = (
        "import json\nfrom zoo.describe import describe\nfrom zoo.host.registry import default_registry\n"
        "from zoo.describe.pages.model_card import shared_words, words_between\n"
        "found = {name: describe(name, default_registry()) for name in ('llama', 'mixtral', 't5')}\n"
        "print(json.dumps(shared_words(words_between(found)['en'], 1)))"
    )
    first, second = (
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    )
    assert first == second


def test_equal_layers_of_a_recipe_are_written_once():
    (gemma,) = described("gemma2").values()
    lines = recipe_lines(gemma.recipe)
    notes = [line.strip() for line in lines if '"//"' in line]
    assert notes == ['"//": "13 × even layers",', '"//": "13 × odd layers",']
    assert len([line for line in lines if '"block": "layer/sandwich"' in line]) == 2


def test_facts_of_the_machine_stay_out():
    registry = default_registry()
    (found,) = described("gemma2").values()
    names = [fact[0] for fact in card(found, registry)["facts"]]
    assert "parameters.total" in names
    assert not any(name == "fits" or name.startswith("cache.kind.") for name in names)
