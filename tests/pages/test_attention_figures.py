"""What the tour's pages on tokens, positions and attention say of their figures holds for what these compute."""

import re
from pathlib import Path

import numpy as np
import pytest

import zoo

DOCS = Path(__file__).parents[2] / "docs"
MADE = (
    *(
        "tour_map",
        "tokens_merges",
        "tokens_vocabulary",
        "embeddings_lookup",
        "embeddings_map",
        "positions_tables",
    ),
    *("positions_pairs", "positions_scaling", "positions_rotary", "attention_steps", "attention_heads"),
    *("attention_masks", "variants_sharing", "variants_bytes", "variants_windows", "variants_sinks"),
)


@pytest.mark.parametrize("name", MADE)
def test_it_takes_its_colours_from_the_page_and_speaks_both_languages(figure, name):
    drawn = {language: figure(name).draw(language) for language in ("en", "zh")}
    assert re.search(r"[\u4e00-\u9fff]", drawn["zh"])
    for text in drawn.values():
        assert "<svg" in text and text.count("<svg") == text.count("</svg>")
        colours = re.findall(r"(?:fill|stroke):([^;\"}]+)", text)
        assert colours
        assert all(re.match(r"none|var\(--|color-mix\(in srgb,var\(--", colour) for colour in colours)


def test_merges_end_with_the_token_of_the_pocket(figure):
    merges = figure("tokens_merges")
    states = merges.merged(merges.WORD)
    assert "".join(states[0][2]) == states[-1][2][0] == "Ġcapital"
    ranks = [rank for rank, _, _ in states[1:]]
    assert ranks == sorted(ranks)
    assert len(zoo.load("llama").tokenizer.encode(merges.WORD)) == len(states[-1][2]) == 1


def test_every_occurrence_of_a_pair_is_merged(figure):
    joined = figure("tokens_merges").joined
    assert joined(["a", "b", "a", "b", "c"], ("a", "b")) == ["ab", "ab", "c"]
    assert joined(["a", "a", "a"], ("a", "a")) == ["aa", "a"]


def test_the_rotary_score_is_that_of_the_model_and_depends_on_the_distance_only(figure):
    rotary, steps = figure("positions_rotary"), figure("attention_steps")
    _, scores, _ = steps.steps("en")
    assert steps.HEADS["en"] == (rotary.LAYER, rotary.HEAD)
    assert rotary.score(rotary.POSITION, rotary.DISTANCE) == pytest.approx(float(scores[-1, -2]), abs=1e-3)
    assert rotary.score(20, 1) == pytest.approx(rotary.score(0, 1), abs=1e-3)
    assert abs(rotary.score(0, 5) - rotary.score(0, 1)) > 0.1


def test_pairings_are_neighbours_and_halves(figure):
    pairs = figure("positions_pairs")
    assert pairs.partners(True) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert pairs.partners(False) == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_scalings_keep_or_slow_the_pairs_as_the_page_says(figure):
    scaling = figure("positions_scaling")
    speeds, slowest = scaling.speeds(), 1 / scaling.FACTOR
    assert speeds["linear"] == pytest.approx(slowest)
    assert np.all(np.diff(speeds["dynamic"]) < 0)
    for name in ("yarn", "llama3"):
        assert speeds[name][0] == pytest.approx(1) and speeds[name][-1] == pytest.approx(slowest)
        assert np.all(np.diff(speeds[name]) <= 1e-6)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_head_of_the_steps_looks_at_the_country(figure, language):
    names, scores, pattern = figure("attention_steps").steps(language)
    country = names.index(figure("attention_heads").COUNTRY[language])
    assert pattern[-1, country] > 0.9
    hidden = np.where(np.triu(np.ones_like(scores), 1) > 0, -np.inf, scores)
    shares = np.exp(hidden - hidden.max(axis=1, keepdims=True))
    assert pattern == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-4)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_habit_is_seen_in_its_head(figure, language):
    heads = figure("attention_heads")
    before, named, far = (pattern for _, _, pattern in heads.habits(language))
    names, patterns = heads.patterns(language)
    assert np.diagonal(before, -1).mean() > 0.4
    assert named[-1, names.index(heads.COUNTRY[language])] > 0.9
    assert heads.distance(far) == max(map(heads.distance, patterns.values()))


def test_countries_are_left_and_languages_above(figure):
    points, share = figure("embeddings_map").projected()
    mean = {
        kind: np.mean([(point.x, point.y) for point in points if point.kind == kind], axis=0)
        for kind in ("country", "capital", "language")
    }
    assert mean["country"][0] < mean["language"][0] and mean["country"][0] < mean["capital"][0]
    assert mean["language"][1] < mean["capital"][1]
    assert 0.05 < share < 0.5


def test_fewer_key_value_heads_take_fewer_bytes(figure):
    bytes_of = figure("variants_bytes")
    found = [value for _, value, _ in bytes_of.rows("en")]
    assert found == sorted(found, reverse=True)
    assert found[0] == 4 * found[1] == 32 * found[2]
    latent = bytes_of.token_bytes(bytes_of.recipe_of("deepseek-v3:671b"))
    assert bytes_of.without_latents("deepseek-v3:671b") > 50 * latent
