"""LFM2: its short convolution against a plain loop, its state, and what its config.json may say."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache

from zoo.config import Config
from zoo.errors import ConfigError
from zoo.recipe import Attention
from zoo.testing import same, subject
from zoo_lfm2 import TINY, ShortConvolution, lfm2
from zoo_mlx_lm.tools import Served


@pytest.fixture(scope="module")
def made():
    return subject("lfm2")


def recipe(**changes):
    return lfm2(Config(TINY | changes))


def test_the_convolution_is_gated_on_both_sides(made):
    mixer, x = made.model.layers[0].mixer, mx.random.normal((2, 7, 64), key=mx.random.key(0))
    B, C, h = mx.split(x @ mixer.input.weight.T, 3, axis=-1)
    entering, weight, read = mx.pad(B * h, [(0, 0), (2, 0), (0, 0)]), mixer.convolution.weight, []
    for t in range(7):
        read.append(sum(weight[k] * entering[:, t + k] for k in range(3)))
    same(mixer(x), (C * mx.stack(read, axis=1)) @ mixer.output.weight.T, "output")


def test_a_layer_that_convolves_keeps_two_tokens_and_one_that_attends_all(made):
    cache = made.model.make_cache()
    made.model(made.tokens, cache)
    batch, length = made.tokens.shape
    kept = [sum(array.size for array in one.state) for one in cache]
    assert kept[0] == kept[2] == batch * 2 * 64 and kept[1] >= batch * length * 2 * 2 * 16


def test_runs_with_the_caches_of_mlx_lm(made):
    tokens, caches = made.tokens, [ArraysCache(1), KVCache(), ArraysCache(1)]
    served = Served(made.model, {}, "lfm2")
    pieces = [served(tokens[:, :5], caches), served(tokens[:, 5:], caches)]
    same(mx.concatenate(pieces, axis=1), made.model(tokens), "logits")


@pytest.mark.parametrize(
    ("changes", "attending"),
    [
        (dict(), [1]),
        (dict(layer_types=None, full_attn_idxs=[0, 2]), [0, 2]),
        (dict(layer_types=None), [0, 1, 2]),
    ],
)
def test_layer_types_say_which_layers_attend_else_their_numbers(changes, attending):
    layers = recipe(**changes).layers
    assert [i for i, layer in enumerate(layers) if isinstance(layer.mixer, Attention)] == attending
    assert all(isinstance(layer.mixer, Attention | ShortConvolution) for layer in layers)


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        (dict(intermediate_size=100), 100),
        (dict(intermediate_size=12288, block_auto_adjust_ff_dim=True), 8192),
        (dict(block_ff_dim=6656, block_auto_adjust_ff_dim=True), 4608),
        (dict(intermediate_size=300, block_auto_adjust_ff_dim=True, block_multiple_of=8), 200),
        (dict(intermediate_size=300, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=2.0), 512),
    ],
)
def test_the_width_of_the_feedforward_is_adjusted_as_the_config_says(changes, width):
    assert recipe(**changes).layers[0].feedforward.hidden == width


@pytest.mark.parametrize(("changes", "tied"), [({}, True), (dict(tie_embedding=False), False)])
def test_the_head_is_tied_under_either_key(changes, tied):
    assert recipe(**changes).head.tied is tied


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(layer_types=["conv", "mamba", "conv"]), "layer_types .* must be a list of 3"),
        (
            dict(layer_types=None, full_attn_idxs="all"),
            "full_attn_idxs 'all' must be a list of layer numbers",
        ),
        (dict(conv_L_cache=0), "conv_L_cache 0"),
        (dict(block_use_swiglu=False), "block_use_swiglu False is not implemented"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        recipe(**changes)


def test_every_key_of_the_first_release_s_config_is_known():
    config = Config(
        TINY
        | dict(block_dim=64, block_ff_dim=96, block_ffn_dim_multiplier=1.0, block_mlp_init_scale=1.0)
        | dict(block_multiple_of=256, block_norm_eps=1e-05, block_out_init_scale=1.0, block_use_swiglu=True)
        | dict(block_use_xavier_init=True, conv_L_cache=3, conv_bias=False, conv_dim=64, conv_dim_out=64)
        | dict(conv_use_xavier_init=True, norm_eps=1e-05, num_heads=4, rope_theta=1e6, theta=1e6)
        | dict(use_pos_enc=True, full_attn_idxs=[1], tie_embedding=True)
    )
    lfm2(config)
    assert config.unread() == []
