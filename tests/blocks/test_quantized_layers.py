"""Layers of packed numbers with what formats add to them: a permutation, a second scale, scales of a wider dtype."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from zoo.blocks.feedforward import StackedLinear
from zoo.blocks.quantized import QuantizedLinear
from zoo.checkpoint.parameters import can_hold, fill
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix

DTYPES = (mx.float32, mx.float16, mx.bfloat16)


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


def held(layer, packed):
    """The layer that one becomes to hold the packed matrix."""
    module = nn.Module()
    module.part = layer
    beside = {"part.bias": layer.bias} if "bias" in layer else {}
    fill(module, {"part.weight": packed, **beside})
    return module.part


def with_extras(packed, **extras):
    return QuantizedMatrix(**{**vars(packed), **extras})


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 24])
@pytest.mark.parametrize(
    "quantization",
    [QuantizationSpec(4, 16, "nvfp4"), QuantizationSpec(8, 32, "mxfp8"), QuantizationSpec(4, 32)],
)
def test_a_global_scale_multiplies_outputs(quantization, outputs, bias):
    packed = quantize_matrix("a", normal(24, 64), quantization)
    packed = with_extras(packed, global_scale=mx.abs(normal(outputs, seed=1)))
    layer = held(nn.Linear(64, 24, bias=bias), packed)
    assert type(layer) is QuantizedLinear
    x = normal(2, 5, 64, seed=2)
    expected = x @ packed.numbers(mx.float32).T + (layer.bias if bias else 0)
    assert mx.allclose(layer(x), expected, atol=1e-4)


def test_a_permutation_reorders_inputs():
    order = mx.array([*range(1, 64), 0])
    packed = with_extras(quantize_matrix("a", normal(24, 64), QuantizationSpec(4, 32)), permutation=order)
    layer = held(nn.Linear(64, 24), packed)
    x = normal(3, 64, seed=2)
    assert mx.allclose(layer(x), x @ packed.numbers(mx.float32).T + layer.bias, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scaled", [True, False])
def test_activations_keep_their_dtype_whatever_the_scales_have(dtype, scaled):
    packed = quantize_matrix("a", normal(24, 64), QuantizationSpec(4, 32))  # float32 scales
    if scaled:
        packed = with_extras(packed, global_scale=mx.array([2.0]))
    layer = held(nn.Linear(64, 24, bias=False), packed)
    x = normal(3, 64, seed=2).astype(dtype)
    assert layer(x).dtype == dtype
    assert mx.allclose(layer(x), x @ packed.numbers(mx.float32).T, rtol=0.02, atol=0.05)


def test_sums_that_are_not_yet_scaled_do_not_overflow_a_half():
    """NVFP4's numbers before the second scale reach 2688."""
    packed = with_extras(
        quantize_matrix("a", mx.full((8, 64), 2688.0), QuantizationSpec(4, 16, "nvfp4")),
        global_scale=mx.array([1e-4]),
    )
    layer = held(nn.Linear(64, 8, bias=False), packed)
    found = layer(mx.full((1, 64), 2.0, dtype=mx.float16))
    assert found.dtype == mx.float16
    assert mx.allclose(found, mx.full((1, 8), 2688 * 2 * 64 * 1e-4), rtol=0.01)


@pytest.mark.parametrize("outputs", [1, 24])
@pytest.mark.parametrize("bias", [True, False])
def test_stacked_matrices_have_a_scale_each(outputs, bias):
    packed = quantize_matrix("a", normal(3, 24, 64), QuantizationSpec(4, 16, "nvfp4"))
    packed = with_extras(packed, global_scale=mx.abs(normal(3, outputs, seed=1)))
    layer = held(StackedLinear(3, 64, 24, bias=bias), packed)
    if bias:
        layer.bias = normal(3, 24, seed=4)
    x, indices = normal(2, 5, 1, 64, seed=2), mx.array([[0, 2, 1, 1, 0], [2, 2, 0, 1, 0]], mx.uint32)
    numbers = packed.numbers(mx.float32)[indices]  # (2, 5, 24, 64)
    expected = x @ numbers.swapaxes(-1, -2) + (layer.bias[indices][..., None, :] if bias else 0)
    assert mx.allclose(layer(x, indices), expected, atol=1e-4)
    assert bias or layer(x.astype(mx.float16), indices).dtype == mx.float16


def test_which_layers_can_hold_what():
    plain = quantize_matrix("a", normal(24, 64), QuantizationSpec(4, 16, "nvfp4"))
    scaled = with_extras(plain, global_scale=mx.ones(1))
    permuted = with_extras(plain, permutation=mx.arange(64))
    for layer, known in (
        (nn.Linear(64, 24), (1, 1, 1)),
        (StackedLinear(2, 64, 24), (1, 1, 0)),
        (nn.Embedding(24, 64), (1, 0, 0)),
        (nn.LayerNorm(64), (0, 0, 0)),
    ):
        assert tuple(can_hold(layer, packed) for packed in (plain, scaled, permuted)) == tuple(
            map(bool, known)
        )
