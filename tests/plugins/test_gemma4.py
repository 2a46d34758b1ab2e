"""Gemma 4: what its config.json may say, its rotated pairs, its values."""

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers.decoded import both
from zoo.assemble import assemble
from zoo.config import Config
from zoo.describe import describe
from zoo.errors import ConfigError
from zoo.host.registry import default_registry
from zoo.testing import same
from zoo.weights.shared import IgnoreShared

ARCHITECTURE = default_registry().architecture("gemma4")
TINY = ARCHITECTURE.preset("tiny").config
TINY_E = ARCHITECTURE.preset("tiny-e").config
TINY_MOE = ARCHITECTURE.preset("tiny-moe").config


def recipe(**changes):
    return ARCHITECTURE.recipe_of(Config(TINY | changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (dict(num_kv_shared_layers=1), "num_kv_shared_layers 1 leaves no layer of full_attention"),
        (dict(num_kv_shared_layers=4), "num_kv_shared_layers 4 leaves no layer"),
        (dict(enable_moe_block=True), "num_experts"),
        (dict(TINY_MOE, top_k_experts=9), "top_k_experts 9 is more than the 6 experts"),
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


def filled(model, tokens):
    cache = model.make_cache()
    model(tokens, cache)
    return cache


def test_the_last_layers_read_the_keys_and_values_of_the_last_layer_before_them_of_their_kind():
    model = assemble(ARCHITECTURE.recipe_of(Config(TINY_E)), default_registry())
    tokens = mx.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    before = model(tokens)
    local, full = (model.layers[index].mixer for index in (1, 2))
    assert (
        local.spec.gives
        == model.layers[3].spec.mixer.takes
        != full.spec.gives
        == model.layers[5].mixer.spec.takes
    )
    assert "key" not in model.layers[3].mixer and sum(cache.rows for cache in filled(model, tokens)) == 3
    local.value.weight = mx.zeros_like(local.value.weight)
    x, passed = model.embed(tokens, 0)
    for layer, window in zip(model.layers[:3], (6, 6, None), strict=True):
        mask = model.mask(8, window, None, None, None)
        more = (passed,) if layer.spec.gives or layer.spec.takes else ()
        x = layer(x, mask, None, *more)
    assert not passed["sliding_attention"][1].any() and passed["full_attention"][1].any()
    assert mx.abs(model.layers[3].mixer(x, None, None, passed)).max() == 0
    assert mx.abs(model(tokens) - before).max() > 1e-4


def test_a_layers_own_input_is_its_part_of_a_second_table_and_of_a_projection():
    model = assemble(ARCHITECTURE.recipe_of(Config(TINY_E)), default_registry())
    tokens = np.array([[3, 250]])  # the second table has 200 rows: others have the row 0
    x, passed = model.embed(mx.array(tokens), 0)
    embedding, x = model.embedding, np.array(x)
    rows = np.array(embedding.layer_tokens.weight)[[[3, 0]]] * 8**0.5
    projected = (x @ np.array(embedding.projection.weight).T / 64**0.5).reshape(1, 2, 6, 8)
    projected /= np.sqrt((projected**2).mean(-1, keepdims=True) + 1e-6)
    expected = (projected + rows.reshape(1, 2, 6, 8)) / 2**0.5
    assert np.abs(np.array(passed["per_layer_inputs"]) - expected).max() < 1e-5


def test_tensors_of_shared_layers_that_published_files_hold_are_left_out():
    recipe, left = ARCHITECTURE.recipe_of(Config(TINY_E)), {}
    names = [
        f"model.layers.{i}.self_attn.{part}.weight" for i in (2, 3) for part in ("k_proj", "v_proj", "k_norm")
    ]
    source = dict.fromkeys(names, 0)
    for rule in ARCHITECTURE.weights:
        if isinstance(rule, IgnoreShared):
            rule.forward(source, left, recipe, None)
    assert sorted(source) == sorted(names[:3])


def test_experts_read_a_norm_of_what_the_router_reads_and_are_weighed_by_a_factor_each():
    model = assemble(ARCHITECTURE.recipe_of(Config(TINY_MOE)), default_registry())
    mixture, x = model.layers[0].mixture, mx.random.normal((1, 3, 64))
    router = mixture.router
    router.gain, router.expert_scale = mx.random.normal((64,)), mx.arange(1, 7) / 4
    mixture.experts_norm.weight = mx.random.normal((64,))
    raw = np.array(x, np.float64)
    raw /= np.sqrt((raw**2).mean(-1, keepdims=True) + 1e-6)
    logits = (raw * np.array(router.gain) / 8) @ np.array(router.scores.weight).T
    chosen = np.argsort(-logits)[..., :2]
    weights = np.exp(np.take_along_axis(logits, chosen, -1))
    weights = weights / weights.sum(-1, keepdims=True) * np.array(router.expert_scale)[chosen]
    outputs = mixture.experts(
        mx.array(raw * np.array(mixture.experts_norm.weight), mx.float32), mx.array(chosen)
    )
    expected = (np.array(outputs) * weights[..., None]).sum(-2)
    assert np.abs(np.array(mixture(x)) - expected).max() < 1e-5


@pytest.mark.parametrize("config", [TINY_MOE, TINY_E, TINY_E | dict(attention_k_eq_v=True)])
def test_the_compiled_step_gives_the_models_logits(config):
    model = assemble(ARCHITECTURE.recipe_of(Config(config)), default_registry())
    for layer in model.layers:
        layer.scalar = mx.random.uniform(0.5, 2, (1,))
        if "mixture" in layer:
            layer.mixture.router.gain = mx.random.uniform(0.5, 2, (64,))
            layer.mixture.router.expert_scale = mx.random.uniform(0.5, 2, (6,))
    expected, found = both(model, mx.random.randint(0, 256, (2, 9)))
    same(found, expected, "logits")


def test_facts_have_the_mixture_beside_the_dense_feed_forward():
    sheet = describe("gemma4:tiny-moe", default_registry()).sheet(default_registry())
    names = ("feedforward", "hidden", "experts", "experts_used", "expert_width")
    values = [sheet.value(f"decoder.{name}") for name in names]
    assert values == ["GEGLU and mixture of GEGLU experts", 128, 6, 2, 32]
