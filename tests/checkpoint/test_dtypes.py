"""Which dtypes quantized folders are held in, on request and where the checkpoint's own is kept, as on a GPU."""

import numpy as np
import pytest

import zoo
from zoo import runtime

from .packers import FP8, affine_numbers, awq

import mlx.core as mx  # isort: skip

AWQ = dict(quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm")
BLOCKS = dict(quant_method="fp8", weight_block_size=[128, 128])


def asymmetric(name, shape):
    draw = np.random.default_rng(len(name))
    codes, scales = draw.integers(0, 16, shape), np.full((shape[0], shape[1] // 32), 0.01, np.float16)
    zeros = draw.integers(0, 16, scales.shape)
    return awq(codes, scales, zeros), affine_numbers(codes, scales, zeros, np.arange(shape[1]) // 32)


def blocks(name, shape):
    codes = np.random.default_rng(len(name)).choice(np.flatnonzero(np.isfinite(FP8)), shape).astype(np.uint8)
    scales = np.full((-(-shape[0] // 128), -(-shape[1] // 128)), 5e-4, np.float32)
    return {"weight": codes, "weight_scale_inv": scales}, FP8[codes] * np.float32(5e-4)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Without a wish, no cast."""
    monkeypatch.setattr(runtime, "compute_dtype", lambda asked=None: getattr(mx, asked) if asked else None)


@pytest.mark.parametrize(
    ("dtype", "scales", "numbers"),
    [
        ("float16", mx.float32, mx.float16),
        ("bfloat16", mx.float32, mx.bfloat16),
        ("float32", mx.float32, mx.float32),
    ],
)
def test_asked_for(pair, dtype, scales, numbers):
    folder, check = pair(asymmetric, AWQ)
    loaded = check(zoo.load(folder, dtype=dtype), 1e-5 if dtype == "float32" else 0.05)
    assert loaded.model.layers[0].mixer.query.scales.dtype == scales
    assert loaded.model(mx.array([[1, 2, 3]])).dtype == numbers


@pytest.mark.usefixtures("as_on_a_gpu")
def test_biases_that_a_half_does_not_hold_stay_wide(pair):
    folder, check = pair(asymmetric, AWQ)
    query = check(zoo.load(folder)).model.layers[0].mixer.query
    assert (query.scales.dtype, query.biases.dtype) == (mx.float32, mx.float32)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.filterwarnings("ignore:.*cannot stay packed")
@pytest.mark.parametrize(
    ("dtype", "expected"), [(None, mx.bfloat16), ("float32", mx.float32), ("float16", mx.float16)]
)
def test_unpacked_numbers(pair, dtype, expected):
    folder, check = pair(blocks, BLOCKS, kinds={"weight": "F8_E4M3"}, preset="pocket")
    loaded = check(zoo.load(folder, dtype=dtype), 1e-5 if dtype == "float32" else 0.05)
    assert loaded.model.layers[0].feedforward.down.weight.dtype == expected
