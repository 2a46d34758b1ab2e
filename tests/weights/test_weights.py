"""Weight rules: what a pattern fits, and that each rule undoes itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo.errors import CheckpointError
from zoo.recipe import Attention, Decoder, Embedding, GatedMLP, Head, Layer
from zoo.weights import Depthwise, Ignore, OfBlock, OutputHead, Rename, Split, Transpose, apply, invert


class OtherAttention(Attention):
    """Another block with parameters of the same names."""


UNTIED = SimpleNamespace(head=Head())
TIED = SimpleNamespace(head=Head(tied=True))


def forward(rules, tensors, recipe=UNTIED):
    return apply(rules, tensors, recipe, np.concatenate)


def backward(rules, parameters, recipe=UNTIED):
    return invert(rules, parameters, recipe, np.concatenate)


def array(*shape):
    return np.arange(np.prod(shape)).reshape(shape)


RULES = (
    Rename("[model.]embed.*", "embedding.*"),
    Rename("[model.]layers.{i}.norm.weight", "layers.{i}.norm.weight"),
    Transpose("[model.]layers.{i}.up.weight", "layers.{i}.feedforward.up.weight"),
    Split("[model.]layers.{i}.qkv.weight", ("layers.{i}.q", "layers.{i}.k", "layers.{i}.v"), transpose=True),
    OutputHead("lm_head.*", "head.output.*"),
    Ignore("[model.]layers.{i}.mask"),
)

TENSORS = {
    "model.embed.weight": array(7, 4),
    "model.layers.0.norm.weight": array(4),
    "model.layers.11.norm.weight": array(4) + 1,
    "model.layers.0.up.weight": array(4, 6),
    "model.layers.0.qkv.weight": array(4, 6),
    "model.layers.0.mask": array(3, 3),
    "lm_head.weight": array(7, 4),
}


def test_every_tensor_is_moved_and_put_right():
    found, left = forward(RULES, TENSORS)
    assert not left
    assert set(found) == {
        "embedding.weight",
        "layers.0.norm.weight",
        "layers.11.norm.weight",
        "layers.0.feedforward.up.weight",
        "layers.0.q",
        "layers.0.k",
        "layers.0.v",
        "head.output.weight",
    }
    assert found["layers.0.feedforward.up.weight"].shape == (6, 4)
    np.testing.assert_array_equal(found["layers.0.k"], TENSORS["model.layers.0.qkv.weight"].T[2:4])
    np.testing.assert_array_equal(found["layers.11.norm.weight"], array(4) + 1)


def test_backward_undoes_forward():
    found, _ = forward(RULES, TENSORS)
    back, left = backward(RULES, found)
    assert not left
    assert set(back) == set(TENSORS) - {"model.layers.0.mask"}
    for name, tensor in back.items():
        np.testing.assert_array_equal(tensor, TENSORS[name])


def test_an_optional_prefix_is_accepted_missing_and_written_on_export():
    short = {name.removeprefix("model."): tensor for name, tensor in TENSORS.items()}
    found, left = forward(RULES, short)
    assert not left
    assert "model.embed.weight" in backward(RULES, found)[0]


def test_what_no_rule_takes_is_left():
    _, left = forward(
        RULES, {**TENSORS, "model.layers.0.surprise": array(1), "models.embed.weight": array(1)}
    )
    assert set(left) == {"model.layers.0.surprise", "models.embed.weight"}
    assert set(backward(RULES, {"extra": array(1)})[1]) == {"extra"}


def test_a_tied_head_leaves_the_checkpoints_copy_out():
    found, left = forward(RULES, TENSORS, TIED)
    assert "head.output.weight" not in found and not left


def test_a_placeholder_is_one_step_of_the_name():
    found, left = forward((Rename("a.{i}.b", "x.{i}"),), {"a.1.b": 1, "a.1.2.b": 2})
    assert found == {"x.1": 1} and set(left) == {"a.1.2.b"}


def test_two_tensors_for_one_parameter_are_refused():
    both = {"embed.weight": array(2), "model.embed.weight": array(2)}
    with pytest.raises(CheckpointError, match=r"embedding\.weight"):
        forward(RULES, both)


def test_a_fused_tensor_that_does_not_split_is_named():
    with pytest.raises(CheckpointError, match=r"model\.layers\.0\.qkv\.weight.*\(7, 4\)"):
        forward(RULES, {"model.layers.0.qkv.weight": array(4, 7)})


def test_a_placeholder_that_stands_twice_has_one_value():
    found, left = forward((Rename("a.{i}.b.{i}", "x.{i}"),), {"a.1.b.1": 1, "a.1.b.2": 2})
    assert found == {"x.1": 1} and set(left) == {"a.1.b.2"}


@pytest.mark.parametrize("tied", [True, False])
def test_a_heads_bias_is_where_the_head_keeps_it_tied_or_not(tied):
    rules, recipe = (
        (OutputHead("lm_head.*", "head.output.*"),),
        SimpleNamespace(head=Head(tied=tied, bias=True)),
    )
    stored = {"lm_head.weight": array(7, 4), "lm_head.bias": array(7)}
    parameters, left = forward(rules, stored, recipe)
    assert not left
    assert parameters.keys() == ({"head.bias"} if tied else {"head.output.weight", "head.output.bias"})
    back, left = backward(rules, parameters, recipe)
    assert not left and back.keys() == ({"lm_head.bias"} if tied else stored.keys())
    _, left = forward(rules, {"lm_head.bias": array(7)}, TIED)  # of a head that has none
    assert not left


@pytest.mark.parametrize(("axis", "shape"), [(1, (6, 1, 4)), (2, (6, 4, 1))])
def test_a_depthwise_convolution_loses_its_one_channel_and_gets_it_back(axis, shape):
    rule = Depthwise("conv.weight", "convolution.weight", axis=axis)
    stored = {"conv.weight": np.arange(24.0).reshape(shape)}
    parameters, left = forward([rule], stored)
    assert not left and parameters["convolution.weight"].shape == (4, 6)
    assert np.array_equal(parameters["convolution.weight"], stored["conv.weight"].reshape(6, 4).T)
    back, _ = backward([rule], parameters)
    assert np.array_equal(back["conv.weight"], stored["conv.weight"])


def test_parameters_of_one_name_are_told_apart_by_their_block():
    attends = Layer(Attention(heads=2), GatedMLP(hidden=4), None, None)
    plain = attends.change(mixer=OtherAttention(heads=2))
    recipe = Decoder(Embedding(vocab=5, dim=4), (attends, plain), None, Head())
    rules = (
        OfBlock(OtherAttention, (Rename("l.{i}.capped.{p}.*", "layers.{i}.mixer.{p}.*"),)),
        Rename("l.{i}.plain.{p}.*", "layers.{i}.mixer.{p}.*"),
    )
    stored = {"l.0.plain.output.weight": array(4, 4), "l.1.capped.output.weight": array(4, 4)}
    parameters, left = forward(rules, stored, recipe)
    assert not left and parameters.keys() == {"layers.0.mixer.output.weight", "layers.1.mixer.output.weight"}
    back, left = backward(rules, parameters, recipe)
    assert not left and back.keys() == stored.keys()
