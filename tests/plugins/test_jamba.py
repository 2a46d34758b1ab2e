"""Jamba: whose turn it is in each layer, norms within its state space, what its config.json may say."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.recipe import Attention, MoE
from zoo.testing import same, subject
from zoo_jamba import FIRST, TINY, NormedStateSpace, jamba
from zoo_mlx_lm.tools import Served


def recipe(numbers=TINY, **changes):
    return jamba(Config(numbers | changes))


def attending(made):
    assert all(isinstance(layer.mixer, Attention | NormedStateSpace) for layer in made.layers)
    return [i for i, layer in enumerate(made.layers) if isinstance(layer.mixer, Attention)]


def mixing(made):
    return [i for i, layer in enumerate(made.layers) if isinstance(layer.feedforward, MoE)]


def test_one_layer_in_eight_attends_and_every_other_has_experts():
    made = recipe(FIRST)
    assert attending(made) == [4, 12, 20, 28] and mixing(made) == [*range(1, 32, 2)]
    assert made.layers[4].mixer.rope is None and not made.layers[1].feedforward.router.normalised


def test_layers_are_named_or_counted_off():
    assert attending(recipe()) == [1] and mixing(recipe()) == [1]
    assert attending(recipe(layers_block_type=["attention", "mamba", "attention"])) == [0, 2]
    assert mixing(recipe(num_experts=1)) == []


def test_dt_and_B_and_C_are_normalised_before_they_are_used():
    mixer = subject("jamba").model.layers[0].mixer
    x = mx.random.normal((1, 5, 128), key=mx.random.key(0))
    dt, B, C = mixer.project(x)
    for part, weight in ((dt, mixer.dt_norm), (B, mixer.B_norm), (C, mixer.C_norm)):
        assert mx.allclose(mx.square(part / weight).mean(axis=-1), mx.array(1.0), rtol=1e-2)


def test_runs_with_the_caches_of_mlx_lm():
    made = subject("jamba")
    tokens, caches = made.tokens, [ArraysCache(2), KVCache(), ArraysCache(2)]
    served = Served(made.model, {}, "jamba")
    pieces = [served(tokens[:, :5], caches), served(tokens[:, 5:], caches)]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(attn_layer_offset=3), "attn_layer_offset 3 is not below attn_layer_period, 3"),
        (dict(expert_layer_offset=2), "expert_layer_offset 2 is not below expert_layer_period, 2"),
        (dict(mamba_dt_rank="half"), "mamba_dt_rank 'half'"),
        (dict(layers_block_type=["mamba"]), "layers_block_type .* must be a list of 3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**changes)


def test_every_key_of_a_published_config_is_known():
    config = Config(
        FIRST
        | dict(attention_dropout=0.0, hidden_act="silu", mamba_conv_bias=True, mamba_proj_bias=False)
        | dict(
            num_logits_to_keep=1, output_router_logits=False, rms_norm_eps=1e-06, router_aux_loss_coef=0.001
        )
        | dict(tie_word_embeddings=False, use_mamba_kernels=True)
    )
    jamba(config)
    assert config.unread() == []
