"""Floats of 64 bits and of 8 without a scale: read as the numbers they are, beside others or alone."""

import numpy as np
import pytest

import zoo
from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import load_file, open_tensors
from zoo.errors import CheckpointError
from zoo.host.registry import default_registry

from .packers import FP8, write_safetensors

import mlx.core as mx  # isort: skip

BYTES = np.arange(256, dtype=np.uint8)
# E5M2 is a sign, five bits of exponent with a bias of 15, two of mantissa: the upper byte of a float16.
E5M2 = (BYTES.astype(np.uint16) << 8).view(np.float16)


def test_both_are_read_beside_others(tmp_path):
    wide = np.random.default_rng(0).normal(size=(5, 7))
    others = {"f32": wide.astype(np.float32), "i64": np.arange(3), "u8": BYTES}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"F64": wide, "e5m2": BYTES, **others}, {"e5m2": "F8_E5M2"})
    tensors = load_file(path)
    assert tensors.dtypes["F64"] == "F64" and tensors.dtypes["e5m2"] == "F8_E5M2"
    assert tensors.arrays["F64"].dtype == mx.float32
    np.testing.assert_array_equal(np.array(tensors.arrays["F64"]), wide.astype(np.float32))
    np.testing.assert_array_equal(np.array(tensors.arrays["e5m2"]), E5M2)
    for name, array in others.items():
        np.testing.assert_array_equal(np.array(tensors.arrays[name]), array)


def test_e4m3_that_no_format_took_are_floats(tmp_path):
    finite = BYTES[np.isfinite(FP8)].reshape(2, -1)
    write_safetensors(tmp_path / "model.safetensors", {"a": finite}, {"a": "F8_E4M3"})
    found = gather(open_tensors(tmp_path), {}, default_registry()).arrays["a"]
    assert found.dtype == mx.bfloat16
    np.testing.assert_array_equal(np.array(found.astype(mx.float32)), FP8[finite])


@pytest.mark.parametrize("dtype", ["F64", "F8_E5M2", "F8_E4M3"])
def test_a_folder_of_them_is_loaded(pair, dtype):
    draw = np.random.default_rng(0)

    def make(name, shape):
        if dtype == "F64":
            numbers = draw.normal(size=shape) * 0.05
            return {"weight": numbers}, numbers.astype(np.float32)
        codes = draw.integers(0, 60, shape).astype(np.uint8)  # up to 2 in E4M3, and 1 in E5M2
        return {"weight": codes}, (FP8 if dtype == "F8_E4M3" else E5M2.astype(np.float32))[codes]

    folder, check = pair(make, None, kinds={"weight": dtype})
    check(zoo.load(folder))


def test_a_scale_that_no_config_explains_is_not_dropped(pair):
    def make(name, shape):
        parts = {"weight": np.ones(shape, np.uint8), "weight_scale": np.ones(1, np.float32)}
        return parts, np.ones(shape, np.float32)

    folder, _ = pair(make, None, kinds={"weight": "F8_E4M3"})
    with pytest.raises(CheckpointError, match=r"unexpected tensors .*weight_scale"):
        zoo.load(folder)
