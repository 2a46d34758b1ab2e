"""What the tour's pages say of their figures holds for the checkpoints that they are computed from."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import zoo

DOCS = Path(__file__).parents[2] / "docs"
MADE = (
    *("cache_growth", "cache_time", "experts_use", "feedforward_activations", "feedforward_neuron"),
    *("feedforward_share", "logits_temperature", "residuals_growth", "residuals_norm"),
    *("sampling_beams", "sampling_filters", "text_bytes"),
)


@pytest.mark.parametrize("name", MADE)
def test_it_is_well_formed_and_takes_its_colours_from_the_page(figure, name):
    for language in ("en", "zh"):
        drawn = figure(name).draw(language)
        texts = [
            element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")
        ]
        assert texts and all(texts)
        colours = re.findall(r"(?:fill|stroke)[:=]\"?([^;\"]+)", drawn)
        assert all(re.match(r"none|var\(--|color-mix\(in srgb,var\(--", colour) for colour in colours)


def test_the_axes_place_their_ends_at_the_frame(figure):
    plots = figure("plots")
    axes = plots.Axes(
        (1, 16), (0, 10), width=100, height=80, left=10, right=20, top=5, bottom=15, x_scale=plots.log2
    )
    assert axes.at(1, 0) == (10, 65)
    assert axes.at(16, 10) == (80, 5)
    assert axes.at(4, 5) == (45, 35)


def test_counts_are_written_in_either_language(figure):
    counted = figure("numbers").counted
    assert [counted(46_702_792_704, language) for language in ("en", "zh")] == ["46.7 billion", "467 亿"]
    assert [counted(671e9, "zh"), counted(63_082_496, "zh")] == ["6,710 亿", "6,310 万"]


def test_beam_search_finds_a_likelier_sentence_than_greedy_choice_from_a_less_likely_beginning(figure):
    beams = figure("sampling_beams")
    loaded = zoo.load("llama")
    steps, found = beams.searched(loaded, beams.BEAMS)
    _, greedy = beams.searched(loaded, 1)
    assert beams.total(loaded, found) > beams.total(loaded, greedy)
    assert beams.total(loaded, found[:1]) < beams.total(loaded, greedy[:1])
    assert beams.paths(steps)[0][0] == greedy[:1]
    assert {found[-1], greedy[-1]} == {loaded.tokenizer.id("<|endoftext|>")}


def test_a_character_is_split_over_two_tokens_and_shown_with_the_second(figure):
    bytes_of_text = figure("text_bytes")
    steps = list(zoo.stream(zoo.load("llama"), bytes_of_text.PROMPT, max_tokens=bytes_of_text.TOKENS))
    assert [step.text for step in steps[:3]] == ["金", "", "边"]


def test_only_post_ln_keeps_the_stream_level(figure):
    growth = figure("residuals_growth")
    for name in ("llama", "gemma2"):
        assert (np.diff(growth.lengths(name)) > 0).all()
    level = growth.lengths("gpt2-postln")
    assert np.ptp(level[1:4]) < 1 < level[4] - level[3]


def test_the_first_layer_uses_all_experts_and_later_ones_do_not(figure):
    use = figure("experts_use")
    kinds, chosen = use.tokens_and_choices()
    assert (chosen.sum(axis=-1) == 2).all()
    loads = chosen.mean(axis=1)
    assert loads[0].min() > 0.1
    assert (loads[1:].min(axis=-1) < 0.05).all()
    shares = np.stack([chosen[0, kinds == kind].mean(axis=0) for kind in use.KINDS])
    assert (np.ptp(shares, axis=0) > 0.15).all()  # each expert has kinds that it prefers


def test_the_feature_that_is_shown_is_largest_after_the_words_it_looks_for(figure):
    neuron = figure("feedforward_neuron")
    loaded = zoo.load("llama")
    feature, hidden = neuron.chosen(loaded)
    assert hidden == loaded.recipe.layers[0].feedforward.hidden
    found = neuron.largest(loaded, feature)
    assert sum("capital" in before for _, before, _ in found) > len(found) / 2
