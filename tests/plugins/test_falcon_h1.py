"""Falcon-H1: a layer adds both of its mixers, each scaled; what its config.json may say."""

import mlx.core as mx
import pytest

from zoo.config import Config
from zoo.testing import same, subject
from zoo_falcon_h1 import HALF_BILLION, falcon_h1


@pytest.fixture(scope="module")
def made():
    return subject("falcon-h1")


def test_a_layer_adds_what_each_mixer_adds_alone(made):
    layer, x = made.model.layers[0], mx.random.normal((1, 9, 64), key=mx.random.key(0))
    masks, caches = dict(mixer="causal", memory=None), dict(mixer=None, memory=None)
    both, alone = layer.mixed(x, masks, caches), []
    for silenced in ("mixer", "memory"):
        output = layer[silenced].output
        kept, output.weight = output.weight, mx.zeros_like(output.weight)
        alone.append(layer.mixed(x, masks, caches))
        output.weight = kept
    same(both, alone[0] + alone[1], "sum")
    assert all(mx.abs(part).max().item() > 1e-3 for part in alone)


def test_a_layer_has_keys_and_a_state(made):
    cache = made.model.make_cache()
    made.model(made.tokens, cache)
    assert set(cache[0].parts) == {"mixer", "memory"}
    assert cache[0].length == made.tokens.shape[1]


def test_the_scales_are_those_of_the_config():
    recipe = falcon_h1(Config(HALF_BILLION))
    layer = recipe.layers[0]
    assert recipe.embedding.scale == 5.656854249492381 and recipe.head.scale == 0.0390625
    assert layer.mixer.scale == 64**-0.5 * 0.390625 and layer.mixer_scales == (1.0, 0.9375)
    assert layer.memory_scales == (1.25, 0.23570226039551587)
    assert layer.feedforward.scales == (0.8838834764831844, 0.5859375) and layer.memory.scales[1] == 0.25
    assert layer.memory.eps is None
