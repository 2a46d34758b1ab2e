"""Encoders: their heads, and windows on both sides of a token."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from zoo.assemble import assemble
from zoo.blocks.mask import bidirectional_mask
from zoo.host.registry import default_registry
from zoo.recipe import MLP, Attention, Embedding, Encoder, Head, Layer, LayerNorm, repeat
from zoo.testing import randomise, same

NORM = LayerNorm()


def encoder(layers=1, head=None, **attention):
    layer = Layer(mixer=Attention(2, **attention), feedforward=MLP(8), mixer_norm=NORM, feedforward_norm=NORM)
    return Encoder(Embedding(16, 8), repeat(layer, layers), head=head)


@pytest.mark.parametrize(("tied", "path"), [(True, "head.bias"), (False, "head.output.bias")])
def test_a_head_has_the_embeddings_vocabulary_and_its_bias_where_the_page_says(tied, path):
    recipe = encoder(head=Head(tied=tied, bias=True))
    assert recipe.head.vocab == 16
    model = assemble(recipe, default_registry())
    parameters = dict(tree_flatten(model.parameters()))
    assert parameters[path].shape == (16,)
    assert sum(array.size for array in parameters.values()) == recipe.parameters(recipe.dim)
    assert model(mx.array([[1, 2, 3]])).shape == (1, 3, 16)


def made(recipe):
    model = assemble(recipe, default_registry())
    randomise(model)
    return model


def reach(model, length, at):
    """The tokens whose change changes what the model gives for the token `at`."""
    tokens = mx.random.randint(0, 16, (1, length), key=mx.random.key(1))
    given, found = model(tokens)[0, at], []
    for place in range(length):
        changed = mx.array([[(id + (index == place)) % 16 for index, id in enumerate(tokens[0].tolist())]])
        if not mx.array_equal(model(changed)[0, at], given).item():
            found.append(place)
    return found


@pytest.mark.parametrize(("window", "sides"), [(4, 2), (5, 2), (1, 0), (40, 11)])
def test_a_token_of_an_encoder_sees_half_a_window_on_each_side(window, sides):
    model = made(encoder(window=window))
    for at in (0, 5, 11):
        assert reach(model, 12, at) == list(range(max(0, at - sides), min(12, at + sides + 1)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_for_a_window(side):
    layers = encoder(layers=3, window=2).layers
    model = made(Encoder(Embedding(16, 8), (layers[0], layers[1].change(mixer=dict(window=None)), layers[2])))
    text = mx.random.randint(0, 16, (1, 5), key=mx.random.key(3))
    pad, ones = mx.zeros((1, 6), mx.int32), mx.ones((1, 5), mx.int32)
    both = ((pad, text), (pad, ones)) if side == "left" else ((text, pad), (ones, pad))
    tokens, mask = (mx.concatenate(parts, axis=1) for parts in both)
    found = model(tokens, mask)[:, 6:] if side == "left" else model(tokens, mask)[:, :5]
    same(found, model(text), "the padded row")
    seen = bidirectional_mask(11, window=2, tokens=mask == 1)
    assert seen.any(axis=-1).all().item()  # no softmax of nothing, which is NaN
