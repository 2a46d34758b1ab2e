"""DeepSeek-V3's recipe, rules and blocks, as far as they can be held without a reference."""

import mlx.core as mx
import numpy as np
import pytest

from zoo.config import Config
from zoo.errors import CheckpointError, RecipeError
from zoo.testing import same, subject
from zoo_deepseek import POCKET, V3, deepseek_v3
from zoo_deepseek.block import GroupRouter, LatentAttention, PackableHeadLinear
from zoo_deepseek.rules import IgnorePredictionLayers, SplitHeads
from zoo_deepseek.spec import GroupRouter as GroupRouterSpec


def recipe(**changes):
    return deepseek_v3(Config(POCKET | changes))


def test_a_token_costs_one_latent_and_one_turned_key_a_layer():
    made = subject("deepseek-v3", "pocket")
    cache = made.model.make_cache()
    made.model(made.tokens, cache)
    held = sum(array.nbytes // 4 // array.shape[2] for layer in cache for array in layer.state)
    assert held == made.tokens.shape[0] * made.recipe.kv_cache_size(made.recipe.dim)
    assert made.recipe.kv_cache_size(made.recipe.dim) == 4 * (32 + 16)


def test_the_first_layers_are_dense():
    kinds = [layer.feedforward.name for layer in recipe(first_k_dense_replace=2).layers]
    assert kinds == ["gated-mlp", "gated-mlp", "moe", "moe"]
    assert {layer.feedforward.name for layer in recipe(first_k_dense_replace=9).layers} == {"gated-mlp"}
    kinds = [layer.feedforward.name for layer in recipe(moe_layer_freq=2).layers]
    assert kinds == ["gated-mlp", "gated-mlp", "moe", "gated-mlp"]


def test_yarn_sharpens_the_scores_by_the_square_of_its_mscale():
    yarn = dict(type="yarn", factor=40, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0)
    mixer = recipe(rope_scaling=yarn).layers[0].mixer
    assert mixer.scale == pytest.approx(32**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert mixer.rope.scaling.magnitude == 1.0
    assert recipe(rope_scaling=yarn | dict(mscale_all_dim=0)).layers[0].mixer.scale == pytest.approx(32**-0.5)


def test_shared_experts_are_one_wide_feedforward_or_none():
    assert recipe(n_shared_experts=2).layers[1].feedforward.shared.hidden == 2 * 96
    assert recipe(n_shared_experts=0).layers[1].feedforward.shared is None
    assert recipe(n_shared_experts=None).layers[1].feedforward.shared is None


def test_both_orders_of_latent_attention_are_one():
    made = subject("deepseek-v3", "pocket")
    mixer = made.model.layers[1].mixer
    x = mx.random.normal((2, 5, made.recipe.dim), key=mx.random.key(1))
    results = []
    for absorbed in (False, True):
        mixer.absorbs = lambda queries, keys, absorbed=absorbed: absorbed
        results.append(mixer(x, "causal"))
    same(results[1], results[0], "mixed")


def test_decoding_absorbs_and_a_prompt_expands():
    spec = deepseek_v3(Config(V3)).layers[0].mixer
    absorbs = LatentAttention.absorbs
    mixer = type("Mixer", (), {"spec": spec})()
    assert absorbs(mixer, 1, 2) and absorbs(mixer, 4, 8000)
    assert not absorbs(mixer, 8000, 8000) and not absorbs(mixer, 2048, 8000)


def router(**numbers):
    """A router over 8 experts whose scores are sigmoids of x itself."""
    module = GroupRouter(GroupRouterSpec(**dict(experts=8, top_k=2) | numbers), dim=8)
    module.weight = mx.eye(8)
    return module


X = mx.array([[[3.0, -1.0, 2.0, 2.5, -2.0, 1.0, 0.0, 2.9]]])  # (B, T, E)


def chosen(module):
    indices, weights = module(X)
    return dict(zip(indices[0, 0].tolist(), weights[0, 0].tolist(), strict=True))


def test_the_router_weighs_the_best_by_their_scores():
    found = chosen(router(normalised=False))
    assert found == pytest.approx({0: 1 / (1 + np.exp(-3.0)), 7: 1 / (1 + np.exp(-2.9))})
    assert sum(chosen(router(scale=2.5)).values()) == pytest.approx(2.5)


def test_the_best_pair_of_experts_makes_the_best_group():
    # Groups of two: (3, −1), (2, 2.5), (−2, 1), (0, 2.9). The best single expert is not in the best group.
    assert chosen(router(groups=4, top_k_groups=1)).keys() == {2, 3}


def test_a_correction_moves_the_choice_and_not_the_weights():
    module = router(normalised=False)
    module.correction_bias = mx.array([0, 0, 0, 0, 1.0, 0, 0, -1.0])
    assert chosen(module) == pytest.approx({0: 1 / (1 + np.exp(-3.0)), 4: 1 / (1 + np.exp(2.0))})


def test_experts_of_other_groups_are_out_even_where_corrections_are_negative():
    module = router(groups=4, top_k_groups=1)
    module.correction_bias = -10 * mx.ones(8)
    assert chosen(module).keys() == {2, 3}


def test_an_impossible_router_is_refused():
    with pytest.raises(RecipeError, match="top_k: 5 of only 4"):
        GroupRouterSpec(experts=8, top_k=5, groups=4, top_k_groups=2)


def join(parts, axis):
    return np.concatenate(parts, axis)


def test_heads_split_and_join_again():
    made, rule = recipe(), SplitHeads("{i}.kv_b.weight", "{i}.key", "{i}.value")
    whole = np.arange(4 * (16 + 32) * 32).reshape(-1, 32)
    source, target = {"0.kv_b.weight": whole}, {}
    rule.forward(source, target, made, join)
    assert not source and target["0.key"].shape == (4, 32, 16) and target["0.value"].shape == (4, 32, 32)
    assert (whole[48:64] == target["0.key"][1].T).all() and (target["0.value"][1] == whole[64:96]).all()
    back = {}
    rule.backward(target, back, made, join)
    assert (back["0.kv_b.weight"] == whole).all()


def test_heads_of_another_shape_are_refused():
    with pytest.raises(
        CheckpointError, match=r"tensor 0\.kv_b: expected shape \(192, 32\), found \(191, 32\)"
    ):
        SplitHeads("{i}.kv_b", "{i}.key", "{i}.value").forward(
            {"0.kv_b": np.zeros((191, 32))}, {}, recipe(), join
        )


def test_only_layers_past_the_last_that_predict_are_ignored():
    names = ("layers.3.x", "layers.4.eh_proj.weight", "layers.4.x", "layers.5.x", "layers.one.eh_proj.weight")
    source = dict.fromkeys(names)
    IgnorePredictionLayers("layers.{i}.").forward(source, {}, recipe(), join)
    assert list(source) == ["layers.3.x", "layers.5.x", "layers.one.eh_proj.weight"]


@pytest.mark.parametrize("heads", [1, 3])
def test_packed_heads_compute_what_their_numbers_do(heads):
    linear = PackableHeadLinear(3, 64, 10)
    packed = linear.to_quantized(group_size=32, bits=8)
    linear.weight = mx.dequantize(packed.weight, packed.scales, packed.biases, 32, 8)
    x, y = mx.random.normal((2, heads, 5, 64)), mx.random.normal((2, heads, 5, 10))
    same(packed(x), linear(x), "outputs")
    same(packed.transposed(y), linear.transposed(y), "inputs")
