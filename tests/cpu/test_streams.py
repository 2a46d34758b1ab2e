"""Products with packed matrices are divided among the cores."""

import mlx.core as mx
import pytest

from zoo import runtime
from zoo.cpu import streams


@pytest.mark.parametrize("outputs", [96, 5])
@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_a_divided_product_is_the_whole_one(outputs, mode, monkeypatch):
    group, bits = (64, 4) if mode == "affine" else (32, 4)
    x = mx.random.normal((2, 3, 128), key=mx.random.key(0))
    matrix = mx.random.normal((outputs, 128), key=mx.random.key(1))
    weight, scales, *biases = mx.quantize(matrix, group, bits, mode=mode)
    parts = (weight, scales, biases[0] if biases else None)
    how = dict(group_size=group, bits=bits, mode=mode)
    expected = mx.quantized_matmul(x, *parts, transpose=True, **how)
    monkeypatch.setattr(streams, "LEAST_DIVIDED", 0)
    multiply = runtime.quantized_matmul(*parts, how)
    assert mx.allclose(multiply(x), expected, rtol=1e-5, atol=1e-5).item()
    gradient = mx.grad(lambda x: multiply(x).sum())(x)
    whole = mx.grad(lambda x: mx.quantized_matmul(x, *parts, transpose=True, **how).sum())(x)
    assert mx.allclose(gradient, whole, rtol=1e-5, atol=1e-5).item()
    assert mx.allclose(mx.compile(multiply)(x), expected, rtol=1e-5, atol=1e-5).item()
