"""Gemma 2's recipe: what its config.json says is honoured or refused by name."""

import mlx.core as mx
import pytest

from zoo.checkpoint.open import make_recipe
from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo.testing import subject
from zoo_gemma import GEMMA2_2B, gemma2


def recipe(**changes):
    return gemma2(Config(GEMMA2_2B | changes))


def test_the_2b_has_as_many_parameters_as_published():
    assert recipe().parameters(2304) == 2_614_341_888


def test_windows_alternate_from_the_first_layer_on():
    windows = [layer.mixer.window for layer in recipe().layers]
    assert windows == [4096, None] * 13


def test_layer_types_say_which_layers_have_a_window():
    types = ["full_attention"] * 25 + ["sliding_attention"]
    windows = [layer.mixer.window for layer in recipe(layer_types=types).layers]
    assert windows == [None] * 25 + [4096]


def test_a_null_cap_is_no_cap():
    plain = recipe(attn_logit_softcapping=None, final_logit_softcapping=None)
    assert plain.layers[0].mixer.block() == "mixer/attention"
    assert plain.head.block() == "head/logits"


def test_scores_are_scaled_by_query_pre_attn_scalar():
    assert recipe(query_pre_attn_scalar=144).layers[0].mixer.scale == pytest.approx(1 / 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(use_bidirectional_attention=True), "use_bidirectional_attention True is not implemented"),
        (dict(attn_logit_softcapping=-1.0), "attn_logit_softcapping -1.0 must be positive"),
        (dict(final_logit_softcapping="30"), "final_logit_softcapping '30' expected a number"),
        (dict(query_pre_attn_scalar=0), "query_pre_attn_scalar 0 must be positive"),
        (dict(layer_types=["sliding_attention"]), "layer_types"),
        (dict(layer_types=["chunked_attention"] * 26), "layer_types"),
        (dict(sliding_window=None), "sliding_window None must be a number"),
        (dict(hidden_activation="gelu_10"), "hidden_activation 'gelu_10'"),
        (dict(num_key_value_heads=3), "num_key_value_heads 3 does not divide"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=r"config\.json: ") as caught:
        recipe(**changes)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_published_keys_are_all_known():
    beside = dict(
        model_type="gemma2",
        hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh",
        cache_implementation="hybrid",
        sliding_window_size=4096,
        rope_theta=10000.0,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        attention_bias=False,
        attention_dropout=0.0,
    )
    make_recipe(default_registry().architecture("gemma2"), GEMMA2_2B | beside, default_registry())


def test_logits_never_pass_the_cap():
    made = subject("gemma2")
    made.model.embedding.tokens.weight = made.model.embedding.tokens.weight * 100
    cap = made.recipe.head.cap
    largest = mx.abs(made.model(made.tokens)).max().item()
    assert 0.9 * cap < largest <= cap
