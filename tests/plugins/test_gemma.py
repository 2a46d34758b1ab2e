"""Gemma 2's recipe: what its config.json says is honoured or refused by name."""

import mlx.core as mx
import pytest

from zoo.assemble import assemble
from zoo.config import Config
from zoo.host.registry import default_registry
from zoo.testing import subject
from zoo_gemma import GEMMA2_2B, gemma2


def recipe(**changes):
    return gemma2(Config(GEMMA2_2B | changes))


def test_a_null_cap_is_no_cap():
    plain = recipe(attn_logit_softcapping=None, final_logit_softcapping=None)
    assert plain.layers[0].mixer.block() == "mixer/attention"
    assert plain.head.block() == "head/logits"


def test_scores_are_scaled_by_query_pre_attn_scalar():
    assert recipe(query_pre_attn_scalar=144).layers[0].mixer.scale == pytest.approx(1 / 12)


def test_logits_never_pass_the_cap():
    made = subject("gemma2")
    made.model.embedding.tokens.weight = made.model.embedding.tokens.weight * 100
    cap = made.recipe.head.cap
    largest = mx.abs(made.model(made.tokens)).max().item()
    assert 0.9 * cap < largest <= cap


def test_gemma_3_with_attention_in_both_directions_is_an_encoder_with_half_a_window_on_each_side():
    gemma3 = default_registry().architecture("gemma3")
    config = gemma3.preset("tiny").config | dict(use_bidirectional_attention=True, sliding_window=6)
    recipe = gemma3.recipe_of(Config(config))
    assert recipe.task == gemma3.with_causality(config).task == "encode"
    assert {layer.mixer.window for layer in recipe.layers} == {6, None}
    layer = assemble(recipe.change(layers=recipe.layers[:1]), default_registry())
    tokens = mx.arange(9)[None]
    before, after = layer.encode(tokens), layer.encode(mx.where(tokens == 4, 77, tokens))
    assert (mx.abs(before - after).max(axis=-1)[0] > 0).tolist() == [1 <= place <= 7 for place in range(9)]
