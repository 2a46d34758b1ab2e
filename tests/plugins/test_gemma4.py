"""Gemma 4: what its config.json may say, its rotated pairs, its values."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.assemble import assemble
from zoo.config import Config
from zoo.errors import ConfigError
from zoo.host.registry import default_registry

ARCHITECTURE = default_registry().architecture("gemma4")
TINY = ARCHITECTURE.preset("tiny").config


def recipe(**changes):
    return ARCHITECTURE.recipe_of(Config(TINY | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(hidden_size_per_layer_input=256), "hidden_size_per_layer_input 256"),
        (dict(hidden_size_per_layer_input=None), "hidden_size_per_layer_input .* must be 0"),
        (dict(num_kv_shared_layers=1), "num_kv_shared_layers 1"),
        (dict(enable_moe_block=True), "enable_moe_block True"),
        (dict(use_bidirectional_attention="all"), "use_bidirectional_attention 'all'"),
        (dict(per_layer_config={"0": {"head_dim": 8}}), "per_layer_config"),
        (dict(per_layer_config={"2": {"sliding_window": 8}}), "per_layer_config"),
        (dict(layer_types=["sliding_attention"] * 3), "layer_types .* must end with full_attention"),
        (dict(rope_parameters={"full_attention": {"factor": 8.0}}), "rope_parameters"),
        (dict(rope_parameters={"full_attention": {}, "rope_theta": 1e5}), r"rope_parameters\.rope_theta"),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_key(changes, named):
    with pytest.raises(ConfigError, match=named):
        recipe(**changes)


def test_both_spellings_of_wider_heads_mean_the_same():
    given = {"2": {"head_dim": 32, "num_key_value_heads": 1}}
    other = recipe(per_layer_config=given, global_head_dim=None, num_global_key_value_heads=None)
    assert other == recipe() and recipe().layers[2].mixer.head_dim == 32 != recipe().layers[0].mixer.head_dim


def test_a_quarter_of_the_pairs_of_the_wide_heads_is_rotated_as_among_all():
    rope = assemble(recipe(), default_registry()).layers[2].mixer.rope
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 32)).astype(np.float32)
    angles = np.arange(5)[:, None] * np.where(np.arange(16) < 4, 1e6 ** (-2.0 * np.arange(16) / 32), 0)
    a, b = x[..., :16], x[..., 16:]
    expected = np.concatenate(
        [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1
    )
    assert np.abs(np.array(rope(mx.array(x))) - expected).max() < 1e-5


def test_values_are_the_keys_before_their_norm_in_layers_without_a_window_alone():
    model = assemble(recipe(), default_registry())
    local, full = model.layers[0].mixer, model.layers[2].mixer
    assert "value" in local and "value" not in full
    x = mx.random.normal((1, 3, 64))
    raw = np.array(full.split(full.key(x), full.kv_heads))
    expected = raw / np.sqrt((raw**2).mean(-1, keepdims=True) + 1e-6)
    assert np.abs(np.array(full.project(x)[2]) - expected).max() < 1e-5


def test_a_layers_output_is_scaled():
    model = assemble(recipe(), default_registry())
    layer, x = model.layers[0], mx.random.normal((1, 3, 64))
    whole = layer(x, "causal", None)
    layer.scalar = mx.array([0.5])
    assert mx.allclose(layer(x, "causal", None), whole / 2)
