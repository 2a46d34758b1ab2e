"""Gemma 3n: what its config.json may say, its sparse gates, its residual streams."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.assemble import assemble
from zoo.config import Config
from zoo.errors import ConfigError, RecipeError
from zoo.host.registry import default_registry

ARCHITECTURE = default_registry().architecture("gemma3n")
TINY = ARCHITECTURE.preset("tiny").config


def recipe(**changes):
    return ARCHITECTURE.recipe_of(Config(TINY | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(altup_active_idx=1), "altup_active_idx 1"),
        (dict(altup_correct_scale=False), "altup_correct_scale False"),
        (dict(attention_bias=True), "attention_bias True"),
        (dict(num_kv_shared_layers=5), "num_kv_shared_layers 5 leaves no layer of full_attention"),
        (dict(intermediate_size=[64, 64]), "intermediate_size .* must be 6 whole numbers"),
        (dict(intermediate_size=[64.5] * 6), "intermediate_size .* must be 6 whole numbers"),
        (dict(activation_sparsity_pattern=[0.5]), "activation_sparsity_pattern .* must be 6 numbers"),
        (dict(activation_sparsity_pattern=[1.0] * 6), "activation_sparsity_pattern"),
        (dict(hidden_size_per_layer_input=0), "hidden_size_per_layer_input 0 must be positive"),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_key(changes, named):
    with pytest.raises(ConfigError, match=named):
        recipe(**changes)


def test_positions_that_depend_on_the_length_of_the_text_are_refused():
    scaling = dict(rope_type="dynamic", factor=4.0)
    with pytest.raises(RecipeError, match="rope: angles that depend on the length"):
        assemble(recipe(rope_scaling=scaling), default_registry())


def test_each_layer_may_have_a_feed_forward_of_another_size():
    sizes = [64, 96, 128, 64, 96, 128]
    assert [layer.feedforward.hidden for layer in recipe(intermediate_size=sizes).layers] == sizes


def test_a_sparse_gate_keeps_what_lies_above_a_quantile_of_a_normal_distribution():
    part = assemble(recipe(), default_registry()).layers[0].feedforward
    part.gate.weight, part.up.weight = mx.random.normal((2000, 64)), mx.ones((2000, 64)) / 64
    part.down.weight, part.activation = mx.ones((1, 2000)) / 2000, lambda x: (x > 0).astype(mx.float32)
    assert part(mx.ones((1, 1, 64))).item() == pytest.approx(0.5, abs=0.05)


def test_streams_begin_and_end_with_the_magnitude_of_the_first():
    model = assemble(recipe(), default_registry())
    x, passed = model.embed(mx.array([[3, 1, 4]]), 0)

    def size(y):
        return np.sqrt((np.array(y) ** 2).mean(-1))

    assert passed["streams"].shape == (1, 3, 3, 64)
    assert np.abs(size(passed["streams"]) / size(x)[..., None] - 1).max() < 1e-5
    merge = model.layers[-1].merge
    same = mx.broadcast_to(x[:, :, None], (1, 3, 4, 64))
    for layer in merge.streams:
        layer.weight = 7 * mx.eye(64)
    assert np.abs(np.array(merge(same) - x)).max() < 1e-5 * np.abs(np.array(x)).max()
    assert "merge" not in model.layers[0]
