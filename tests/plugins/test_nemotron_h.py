"""Nemotron-H: each layer is one part, by its letter; norms are named after it; what its config.json may say."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.host.registry import default_registry
from zoo.host.resolve import resolve
from zoo.recipe import Attention
from zoo.testing import subject
from zoo.weights import apply, invert
from zoo_mamba import MixerLayer
from zoo_mamba2 import StateSpace
from zoo_nemotron_h import NANO, TINY, FeedForwardLayer, nemotron_h, weights


def recipe(**changes):
    return nemotron_h(Config(TINY | changes))


def letters(made):
    kinds = {StateSpace: "M", Attention: "*"}
    return "".join("-" if isinstance(x, FeedForwardLayer) else kinds[type(x.mixer)] for x in made.layers)


def test_the_pattern_s_letters_are_layers_of_one_part():
    assert (
        letters(recipe()) == "M-*-M" and letters(nemotron_h(Config(NANO))) == NANO["hybrid_override_pattern"]
    )


def test_words_stand_for_letters_under_either_spelling():
    words = ["linear_attention", "mlp", "full_attention", "attention", "mamba"]
    assert letters(recipe(layers_block_type=words, hybrid_override_pattern=None)) == "M-**M"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (dict(hybrid_override_pattern="M-*-"), "nemotron-h"),
        (dict(layers_block_type=["linear_attention", "mlp"]), "nemotron-h"),
        (dict(hybrid_override_pattern="MEM*E"), "mlx-lm::nemotron_h"),
        (dict(layers_block_type=["linear_attention", "moe"]), "mlx-lm::nemotron_h"),
    ],
)
def test_models_with_experts_are_left_to_another_library(pattern, name):
    assert resolve(default_registry(), dict(model_type="nemotron_h", **pattern)).name == name


def test_attention_has_no_positions_and_one_norm_stands_before_each_part():
    layers = recipe().layers
    assert layers[2].mixer.rope is None and isinstance(layers[2], MixerLayer)
    assert layers[1].feedforward.activation == "relu2" and not layers[1].feedforward.bias


def test_a_norm_is_named_after_the_part_of_its_layer_and_back():
    made = recipe()
    stored = {f"backbone.layers.{i}.norm.weight": mx.full((2,), i) for i in range(5)}
    found, left = apply(weights(1), stored, made, mx.concatenate)
    names = ("mixer_norm", "feedforward_norm", "mixer_norm", "feedforward_norm", "mixer_norm")
    assert not left and list(found) == [f"layers.{i}.{name}.weight" for i, name in enumerate(names)]
    back, left = invert(weights(1), found, made, mx.concatenate)
    assert not left and all(mx.array_equal(back[name], array) for name, array in stored.items())


def test_a_norm_of_a_layer_that_is_not_there_is_left_over():
    stored = {"backbone.layers.5.norm.weight": mx.ones((2,)), "backbone.layers.x.norm.weight": mx.ones((2,))}
    found, left = apply(weights(1), stored, recipe(), mx.concatenate)
    assert not found and set(left) == set(stored)


def test_feedforward_layers_keep_nothing_and_count_tokens():
    made = subject("nemotron-h")
    cache = made.model.make_cache()
    made.model(made.tokens, cache)
    assert [one.held > 0 for one in cache] == [True, False, True, False, True]
    assert {one.length for one in cache} == {made.tokens.shape[1]}
