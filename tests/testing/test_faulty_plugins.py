"""The suite rejects what it is for: one plugin after the other, each with a fault of one kind."""

import re
from dataclasses import dataclass

import mlx.core as mx
import pytest

import zoo_llama
from tests.helpers import faulty
from zoo.assemble import assemble
from zoo.config import Config
from zoo.errors import RecipeError
from zoo.host.registry import isolated
from zoo.recipe import Attention
from zoo.testing import (
    check_architecture,
    checks_of,
    outcome,
    rank_checks,
    run_checks,
    subject,
    traces,
    tuning_checks,
)
from zoo.testing.cache_checks import borders

CACHES = "caches_hold_what_the_recipe_counts"
SEAMS = "chunks_meet_without_a_seam"


@pytest.fixture(scope="module")
def known():
    return isolated(faulty)


def failed(known, name, without=(traces, tuning_checks, rank_checks)):
    """What the checks say that fail, but for those that take long; traces have faults of their own (test_traces.py)."""
    made, left_out = subject(name, registry=known), [module.__name__ for module in without]
    results = [outcome(check, made) for check in checks_of(made) if check.run.__module__ not in left_out]
    return {
        result.name: result.message
        for result in results
        if not result.passed and result.name != "importing_the_plugin_imports_nothing_heavy"
    }


@pytest.mark.slow
def test_the_same_without_a_fault_passes(known):
    assert {result.name for result in run_checks("sound", registry=known) if not result.passed} <= {
        "importing_the_plugin_imports_nothing_heavy"
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("undercounted", "layers.0: after 12 tokens the cache holds 768 numbers, the recipe counts 384"),
        ("hoarding", "layers.0: after 12 tokens the cache holds 1,536 numbers, the recipe counts 768"),
        ("small-state", "holds 64 numbers, the recipe counts 0: cached 0 a token, state 0"),
        ("large-state", "holds 64 numbers, the recipe counts 128: cached 0 a token, state 128"),
    ],
)
def test_a_cache_of_another_size_than_the_recipes(known, name, words):
    found = failed(known, name)
    assert words in found.get(CACHES, ""), found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "length", "seam"),
    [("seam-at-64", 131, 64), ("seam-at-128", 131, 128), ("seam-at-200", 203, 200)],
)
def test_a_seam_between_two_chunks(known, name, length, seam):
    found = failed(known, name)
    assert found.keys() == {SEAMS}, found
    assert f"logits of {length} tokens in one piece: largest difference" in found[SEAMS]
    position = int(re.search(r"at \(0, (\d+), ", found[SEAMS])[1])
    assert seam <= position < length, "no difference before the seam"


@pytest.mark.slow
def test_a_matrix_that_is_read_instead_of_called(known):
    found = failed(known, "reads-packed", without=[traces])
    packed = {
        "quantized_and_loaded_is_identical",
        "lora_of_a_quantized_model_learns_and_is_kept",
        "packed_ranks_compute_what_one_does",
    }
    assert found.keys() == packed, found
    assert all("faulty.py" in message for message in found.values()), found


def test_a_mixer_that_makes_no_cache_is_refused_when_the_model_is_built(known):
    with pytest.raises(
        RecipeError, match=r"layers\.0\.mixer: mixer/forgotten has no make_cache\(policy\)"
    ) as raised:
        check_architecture("without-cache", registry=known)
    assert "\n" not in str(raised.value)


def test_where_nothing_need_be_kept_a_cache_is_refused_only_when_asked_for(known):
    recipe = zoo_llama.llama(Config(zoo_llama.TINY)).change_layers(mixer=faulty.Forgotten())
    with pytest.raises(RecipeError, match="mixer/forgotten has no make_cache"):
        assemble(recipe, known)
    model = assemble(recipe.change(causality="full"), known)
    assert model(mx.array([[1, 2, 3]])).shape == (1, 3, recipe.embedding.vocab)
    with pytest.raises(RecipeError, match="mixer/forgotten has no make_cache"):
        model.make_cache()


def test_a_field_that_only_has_the_name_of_chunks_is_no_border():
    @dataclass(frozen=True)
    class Own(Attention):
        name = "own"
        chunks: int = 4

    recipe = zoo_llama.llama(Config(zoo_llama.TINY)).change_layers(mixer=Own(heads=4))
    assert borders(recipe, recipe) == [64, 128]


@pytest.mark.slow
def test_a_failed_check_is_reported_by_name_and_with_what_differed(known):
    with pytest.raises(AssertionError, match=f"seam-at-64: .*{SEAMS}: logits of 131 tokens") as raised:
        check_architecture("seam-at-64", registry=known)
    assert "a long text is computed in pieces; the result must not depend on them" in str(raised.value)
