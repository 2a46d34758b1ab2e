"""Mixtures of experts: the router's choice, the experts' work in any order, gradients, stacked weights."""

from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_map

from zoo.assemble import build
from zoo.blocks import feedforward
from zoo.errors import CheckpointError, RecipeError
from zoo.host.registry import default_registry
from zoo.recipe import MLP, Experts, GatedMLP, MoE, Router
from zoo.testing import randomise, same
from zoo.weights import Rename, Split, Stack, apply, invert

DIM = 12


def made(spec):
    module = build(spec, DIM, registry=default_registry())
    randomise(module)
    return module


def inputs(length, batch=2):
    return mx.random.normal((batch, length, DIM), key=mx.random.key(7))


def gated(experts, x, number):
    """One expert's feed-forward on all tokens, written out."""

    def linear(part, x):
        y = x @ part.weight[number].T
        return y + part.bias[number] if "bias" in part else y

    gate, up = linear(experts.gate, x), linear(experts.up, x)
    return linear(experts.down, gate * mx.sigmoid(gate) * up)


def written_out(module, x):
    """The mixture as a sum over all experts, most of them with weight zero."""
    logits = x @ module.router.scores.weight.T
    chosen = mx.argsort(-logits, axis=-1)[..., : module.router.spec.top_k]
    probabilities = mx.softmax(logits, axis=-1)
    total = 0
    kept = sum(
        (chosen[..., k : k + 1] == mx.arange(logits.shape[-1])).astype(x.dtype)
        for k in range(chosen.shape[-1])
    )
    weights = probabilities * kept
    if module.router.spec.normalised:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    for number in range(logits.shape[-1]):
        total = total + weights[..., number : number + 1] * gated(module.experts, x, number)
    return total


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [1, 40])  # 40 tokens are more rows than `MANY`: they are sorted
def test_a_mixture_is_the_weighted_sum_of_the_likeliest_experts(normalised, bias, length):
    spec = MoE(Router(5, top_k=2, normalised=normalised), Experts(5, hidden=16, bias=bias))
    module, x = made(spec), inputs(length)
    same(module(x), written_out(module, x), "output", 1e-6)


def test_sorting_by_expert_changes_nothing():
    experts, x = made(Experts(4, hidden=16, bias=True)), inputs(30)
    indices = mx.random.randint(0, 4, (2, 30, 3), key=mx.random.key(1)).astype(mx.uint32)
    assert indices.size >= feedforward.MANY
    pieces = [experts(x[:, i : i + 1], indices[:, i : i + 1]) for i in range(30)]
    same(experts(x, indices), mx.concatenate(pieces, axis=1), "output", 1e-6)


@pytest.mark.parametrize("length", [1, 3, 40])
def test_experts_of_all_ranks_add_up_and_those_of_others_are_zeros(length):
    experts, x = made(Experts(5, hidden=16, bias=True)), inputs(length)
    indices = mx.random.randint(0, 5, (2, length, 3), key=mx.random.key(1)).astype(mx.uint32)
    found = []
    for first, last in ((0, 2), (2, 5)):
        own = made(Experts(last - first, hidden=16, bias=True, first=first))
        own.update(tree_map(lambda whole: whole[first:last], experts.parameters()))  # noqa: B023
        found.append(own(x, indices))
        others = (indices < first) | (indices >= last)
        assert (np.array(found[-1])[np.array(others)] == 0).all()
    same(found[0] + found[1], experts(x, indices), "output", 1e-6)


@pytest.mark.parametrize("length", [1, 40])
def test_a_rank_none_of_whose_experts_is_chosen_gives_zeros(length):
    experts, x = made(Experts(2, hidden=16, first=3)), inputs(length)
    found = experts(x, mx.zeros((2, length, 3), mx.uint32))
    assert found.shape == (2, length, 3, DIM) and not found.any().item()


def test_scale_multiplies_the_weights():
    router = made(Router(4, top_k=2, scale=2.5))
    _, weights = router(inputs(3))
    assert np.allclose(np.array(weights.sum(axis=-1)), 2.5, atol=1e-5)


def test_all_experts_may_be_chosen():
    router = made(Router(3, top_k=3))
    indices, _ = router(inputs(4))
    assert (np.sort(np.array(indices), axis=-1) == [0, 1, 2]).all()


def test_a_shared_expert_sees_every_token_through_its_gate():
    spec = MoE(Router(4, 2), Experts(4, hidden=16), shared=GatedMLP(hidden=20), shared_gate=True)
    module, x = made(spec), inputs(5)
    opened = mx.sigmoid(x @ module.shared_gate.weight.T)
    same(module(x), written_out(module, x) + opened * module.shared(x), "output", 1e-6)
    plain = made(MoE(Router(4, 2), Experts(4, hidden=16), shared=MLP(hidden=20)))
    same(plain(x), written_out(plain, x) + plain.shared(x), "output", 1e-6)


@pytest.mark.parametrize("length", [3, 40])
def test_gradients_reach_router_experts_and_input(length):
    module, x = made(MoE(Router(5, top_k=2), Experts(5, hidden=16, bias=True))), inputs(length)
    parameters = module.parameters()

    def loss(function):
        def of(parameters, x):
            module.update(parameters)
            return mx.square(function(x)).sum()

        return of

    found = mx.grad(loss(module), argnums=(0, 1))(parameters, x)
    expected = mx.grad(loss(lambda x: written_out(module, x)), argnums=(0, 1))(parameters, x)
    same(found[1], expected[1], "gradient of the input", 1e-5)
    for part, name in (("experts", "gate"), ("experts", "up"), ("experts", "down"), ("router", "scores")):
        for kind, array in found[0][part][name].items():
            same(array, expected[0][part][name][kind], f"gradient of {part}.{name}.{kind}", 1e-5)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
@pytest.mark.parametrize("length", [1, 40])
def test_half_precision(dtype, length):
    module, x = made(Experts(4, hidden=16)), inputs(length)
    indices = mx.random.randint(0, 4, (2, length, 2), key=mx.random.key(1)).astype(mx.uint32)
    expected = module(x, indices)
    module.set_dtype(dtype)
    found = module(x.astype(dtype), indices)
    assert found.dtype == dtype
    same(found, expected, "output", 0.02)


@pytest.mark.parametrize("settings", [dict(group_size=32, bits=4), dict(mode="mxfp4"), dict(mode="mxfp8")])
@pytest.mark.parametrize("length", [1, 40])
def test_quantized_experts_are_those_of_their_unpacked_weights(settings, length):
    experts = build(Experts(3, hidden=32, bias=True), 64, registry=default_registry())
    randomise(experts)
    x = mx.random.normal((2, length, 64), key=mx.random.key(7))
    indices = mx.random.randint(0, 3, (2, length, 2), key=mx.random.key(1)).astype(mx.uint32)
    nn.quantize(experts, **settings)
    assert experts.gate.weight.dtype == mx.uint32
    found = experts(x, indices)
    for name in ("gate", "up", "down"):
        packed, experts[name] = experts[name], feedforward.StackedLinear(1, 1, 1)
        experts[name].weight = mx.dequantize(
            packed.weight, packed.scales, packed.get("biases"), **settings, dtype=mx.float32
        )
        experts[name].bias = packed.bias
    same(found, experts(x, indices), "output", 1e-5)


def test_active_parameters_are_those_of_the_chosen_experts():
    spec = MoE(Router(8, 2), Experts(8, hidden=16), shared=GatedMLP(hidden=20), shared_gate=True)
    idle = 6 * 3 * DIM * 16
    assert spec.active_parameters(DIM) == spec.parameters(DIM) - idle
    assert GatedMLP(hidden=20).active_parameters(DIM) == GatedMLP(hidden=20).parameters(DIM)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Router(4, top_k=5), "top_k: 5 of only 4 experts"),
        (lambda: MoE(Router(4, 2), Experts(5, hidden=8)), "scores 4 experts where there are 5"),
        (
            lambda: MoE(Router(4, 2), Experts(2, hidden=8, first=3)),
            "scores 4 experts where there are 2 from 3 on",
        ),
        (lambda: MoE(Router(4, 2), GatedMLP(hidden=8)), "feedforward/gated-mlp is no experts"),
        (lambda: MoE(Router(4, 2), Experts(4, hidden=8), shared_gate=True), "no shared expert"),
        (lambda: Experts(4, hidden=8, activation="swish"), "activation: 'swish'"),
    ],
)
def test_what_does_not_fit_together_is_refused(make, message):
    with pytest.raises(RecipeError, match=message):
        make()


RECIPE = SimpleNamespace(head=SimpleNamespace(tied=False))
RULES = (
    Stack("[model.]layers.{i}.experts.{e}.{p}_proj.*", "layers.{i}.experts.{p}.*"),
    Split("[model.]layers.{i}.experts.gate_up_proj", ("layers.{i}.experts.gate.weight", "layers.{i}.experts.up.weight"), axis=1),
    Rename("other", "other"),
)  # fmt: skip


def experts_apart(count):
    names = [
        f"model.layers.{i}.experts.{e}.{p}_proj.weight"
        for i in (0, 3)
        for e in range(count)
        for p in ("gate", "up")
    ]
    return {name: np.full((3, 2), number) for number, name in enumerate(names)}


def test_experts_are_stacked_by_number_and_taken_apart_again():
    tensors = experts_apart(11)  # 10 sorts before 2 as text
    found, left = apply(RULES, tensors, RECIPE, np.concatenate)
    assert not left and set(found) == {
        f"layers.{i}.experts.{p}.weight" for i in (0, 3) for p in ("gate", "up")
    }
    assert found["layers.3.experts.up.weight"].shape == (11, 3, 2)
    assert found["layers.0.experts.gate.weight"][:, 0, 0].tolist() == list(range(0, 22, 2))
    back, left = invert(RULES, found, RECIPE, np.concatenate)
    assert not left and back.keys() == tensors.keys()
    assert all((back[name] == tensors[name]).all() for name in tensors)


def test_fused_experts_are_split_along_their_outputs():
    whole = np.arange(5 * 6 * 2).reshape(5, 6, 2)
    found, left = apply(RULES, {"layers.0.experts.gate_up_proj": whole}, RECIPE, np.concatenate)
    assert not left
    assert (found["layers.0.experts.gate.weight"] == whole[:, :3]).all()
    assert (found["layers.0.experts.up.weight"] == whole[:, 3:]).all()
    back, _ = invert(RULES[1:], found, RECIPE, np.concatenate)
    assert (back["model.layers.0.experts.gate_up_proj"] == whole).all()


def test_a_missing_expert_is_named():
    tensors = experts_apart(4)
    del tensors["model.layers.3.experts.2.up_proj.weight"]
    with pytest.raises(CheckpointError, match=r"layers\.3\.experts\.0\.up_proj.*expert 2 is missing"):
        apply(RULES, tensors, RECIPE, np.concatenate)


def test_experts_of_different_shapes_are_refused():
    tensors = experts_apart(3)
    tensors["model.layers.0.experts.1.gate_proj.weight"] = np.zeros((3, 3))
    with pytest.raises(CheckpointError, match=r"layers\.0\.experts\.0\.gate_proj\.weight.*different shapes"):
        apply(RULES, tensors, RECIPE, np.concatenate)


def test_weights_of_experts_may_multiply_what_they_read():
    spec = MoE(Router(4, 2), Experts(4, 6), scales_inputs=True)
    mixture, x = build(spec, 8, registry=default_registry()), mx.random.normal((2, 3, 8))
    indices, weights = mixture.router(x)
    each = [
        mixture.experts(x * weights[..., k : k + 1], indices[..., k : k + 1])[..., 0, :] for k in range(2)
    ]
    assert mx.allclose(mixture(x), sum(each), atol=1e-5)
