"""Granite's hybrids: which layers attend, without positions; experts or none; what their config.json may say."""

import mlx.core as mx
import pytest

from zoo.checkpoint.weight_map import fused
from zoo.config import Config
from zoo.recipe import Attention, GatedMLP, MoE
from zoo.weights import apply, invert
from zoo_granite_hybrid import TINY, WEIGHTS, granite_hybrid
from zoo_mamba2 import StateSpace


def recipe(**changes):
    return granite_hybrid(Config(TINY | changes))


@pytest.mark.parametrize(
    ("types", "attending"),
    [
        (["mamba", "attention", "mamba"], [1]),
        (["full_attention", "linear_attention", "full_attention"], [0, 2]),
        (None, []),
    ],
)
def test_a_layer_attends_or_has_a_state_under_either_spelling(types, attending):
    layers = recipe(layer_types=types).layers
    assert [i for i, layer in enumerate(layers) if isinstance(layer.mixer, Attention)] == attending
    assert all(isinstance(layer.mixer, Attention | StateSpace) for layer in layers)


@pytest.mark.parametrize(("kind", "rotary"), [(None, False), ("nope", False), ("rope", True)])
def test_attention_has_no_positions_unless_the_config_says_so(kind, rotary):
    assert (recipe(position_embedding_type=kind).layers[1].mixer.rope is not None) is rotary


def test_without_experts_the_shared_feedforward_is_the_only_one():
    mixed, dense = (
        recipe().layers[0].feedforward,
        recipe(num_local_experts=0, num_experts_per_tok=0).layers[0].feedforward,
    )
    assert isinstance(mixed, MoE) and mixed.router.normalised and isinstance(dense, GatedMLP)
    assert mixed.shared == dense and dense.hidden == TINY["shared_intermediate_size"]


@pytest.mark.parametrize(("experts", "where"), [(4, "feedforward.shared"), (0, "feedforward")])
def test_the_shared_feedforward_is_read_to_where_it_is_and_written_back(experts, where):
    made = recipe(num_local_experts=experts)
    stored = {
        "model.layers.0.shared_mlp.input_linear.weight": mx.arange(8.0).reshape(4, 2),
        "model.layers.0.shared_mlp.output_linear.weight": mx.ones((2, 2)),
    }
    found, left = apply(WEIGHTS, stored, made, mx.concatenate)
    assert not left and set(found) == {f"layers.0.{where}.{part}.weight" for part in ("gate", "up", "down")}
    assert found[f"layers.0.{where}.up.weight"].tolist() == [[4, 5], [6, 7]]
    assert sorted(map(sorted, fused(WEIGHTS, found))) == [
        [f"layers.0.{where}.gate.weight", f"layers.0.{where}.up.weight"]
    ]
    back, left = invert(WEIGHTS, found, made, mx.concatenate)
    assert not left and all(mx.array_equal(back[name], array) for name, array in stored.items())
