"""LFM2: its short convolution against a plain loop, its state, and what its config.json may say."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.recipe import Attention
from zoo.testing import same, subject
from zoo_lfm2 import TINY, ShortConvolution, lfm2


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
