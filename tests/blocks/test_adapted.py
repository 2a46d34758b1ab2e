"""Low-rank changes beside packed matrices give what the changed matrices would."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.blocks.adapted import AdaptedEmbedding, AdaptedLinear, AdaptedStackedLinear, adapted
from zoo.blocks.feedforward import StackedLinear
from zoo.testing import same

RANK = 3


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("growth", [None, mx.abs(normal(24, seed=5))])
def test_a_linear_layer(bias, growth):
    plain = nn.Linear(64, 24, bias=bias)
    if bias:
        plain.bias = normal(24, seed=4)
    layer = plain.to_quantized(group_size=32, bits=8)
    up, down, x = normal(24, RANK), normal(RANK, 64, seed=1), normal(2, 5, 64, seed=2)
    made = adapted(layer, up, down, growth)
    assert type(made) is AdaptedLinear
    matrix = mx.dequantize(layer.weight, layer.scales, layer.biases, 32, 8) + up @ down
    matrix = matrix if growth is None else growth[:, None] * matrix
    same(made(x), x @ matrix.T + (plain.bias if bias else 0), "outputs")


def test_an_embedding_both_ways():
    layer = nn.Embedding(24, 64).to_quantized(group_size=32, bits=8)
    up, down, x = normal(24, RANK), normal(RANK, 64, seed=1), normal(2, 5, 64, seed=2)
    made = adapted(layer, up, down)
    assert type(made) is AdaptedEmbedding
    table = mx.dequantize(layer.weight, layer.scales, layer.biases, 32, 8) + up @ down
    same(made(mx.array([[3, 0, 23]])), table[mx.array([[3, 0, 23]])], "vectors")
    same(made.as_linear(x), x @ table.T, "logits")


def test_stacked_matrices():
    layer = StackedLinear(4, 64, 24, bias=True).to_quantized(group_size=32, bits=8)
    up, down, x = normal(4, 24, RANK), normal(4, RANK, 64, seed=1), normal(2, 5, 1, 64, seed=2)
    indices = mx.array([[0, 3, 1, 1, 2], [3, 2, 0, 1, 0]], mx.uint32)
    made = adapted(layer, up, down)
    assert type(made) is AdaptedStackedLinear
    matrices = mx.dequantize(layer.weight, layer.scales, layer.biases, 32, 8) + up @ down
    same(made(x, indices), x @ matrices[indices].swapaxes(-1, -2), "outputs")


def test_what_has_no_adapted_form_is_not_made():
    embedding = nn.Embedding(24, 64).to_quantized(group_size=32, bits=8)
    assert adapted(embedding, normal(24, RANK), normal(RANK, 64), normal(24)) is None
    assert adapted(nn.LayerNorm(8), normal(24, RANK), normal(RANK, 64)) is None
