"""Jamba: whose turn it is in each layer, norms within its state space, what its config.json may say."""

import mlx.core as mx

from zoo.config import Config
from zoo.recipe import Attention, MoE
from zoo.testing import subject
from zoo_jamba import FIRST, TINY, NormedStateSpace, jamba


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
