"""Encoders: their heads, and windows on both sides of a token."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from zoo.assemble import assemble
from zoo.host.registry import default_registry
from zoo.recipe import MLP, Attention, Embedding, Encoder, Head, Layer, LayerNorm, repeat

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
