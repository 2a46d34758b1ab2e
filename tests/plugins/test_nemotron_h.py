"""Nemotron-H: each layer is one part, by its letter; norms are named after it; what its config.json may say."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo.host.resolve import resolve
from zoo.recipe import Attention
from zoo.testing import same, subject
from zoo.weights import apply, invert
from zoo_mamba import MixerLayer
from zoo_mamba2 import StateSpace
from zoo_mlx_lm.tools import Served
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


def test_runs_with_the_caches_of_mlx_lm():
    made = subject("nemotron-h")
    served, tokens = Served(made.model, {}, "nemotron-h"), made.tokens
    caches = served.make_cache()
    pieces = [served(tokens[:, :5], caches), served(tokens[:, 5:], caches)]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(hybrid_override_pattern="M-E"), "hybrid_override_pattern 'M-E' is not a pattern"),
        (dict(hybrid_override_pattern=None), "hybrid_override_pattern None is not a pattern"),
        (dict(layers_block_type=["linear_attention", "moe"]), "layers_block_type .* is not a pattern"),
        (dict(sliding_window=128), "sliding_window 128 is not implemented"),
        (dict(attention_bias=True), "attention_bias True is not implemented"),
        (dict(time_step_limit=[0.001, 0.1]), "time_step_limit .* is not implemented"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**changes)


def test_every_key_of_a_published_config_is_known():
    config = Config(
        NANO
        | dict(attention_bias=False, attention_dropout=0.0, chunk_size=128, expand=2, hidden_dropout=0.0)
        | dict(mamba_hidden_act="silu", mamba_proj_bias=False, mlp_bias=False, mlp_hidden_act="relu2")
        | dict(num_hidden_layers=56, num_logits_to_keep=1, rescale_prenorm_residual=True, sliding_window=None)
        | dict(residual_in_fp32=False, tie_word_embeddings=False, time_step_floor=0.0001, time_step_max=0.1)
        | dict(time_step_limit=[0.0, float("inf")], time_step_min=0.001, use_bias=False, use_conv_bias=True)
        | dict(use_mamba_kernels=True, mamba_ssm_cache_dtype="float32")
    )
    nemotron_h(config)
    assert config.unread() == []
