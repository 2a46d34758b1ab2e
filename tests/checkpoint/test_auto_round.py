"""AutoRound's folders: packed as GPTQ or AWQ packs, by the name that their config gives the packing."""

import numpy as np
import pytest

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import ConfigError
from zoo.host.registry import default_registry

from .packers import FP4, FP8, affine_numbers, awq, gptq, halves_in_bytes

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="auto-round", bits=4, group_size=64, sym=False, data_type="int")


def matrix(bits=4, outputs=64, inputs=256, group=64):
    draw = np.random.default_rng(bits)
    groups = np.arange(inputs) // group
    codes = draw.integers(0, 2**bits, (outputs, inputs))
    scales = draw.uniform(0.005, 0.02, (outputs, inputs // group)).astype(np.float16)
    zeros = draw.integers(1, 2**bits, scales.shape)
    return codes, scales, zeros, groups, affine_numbers(codes, scales, zeros, groups)


def read(parts, kinds=None, **settings):
    arrays = {f"a.{part}": mx.array(value) for part, value in parts.items() if part != "g_idx"}
    tensors = Tensors(arrays, {f"a.{part}": kind for part, kind in (kinds or {}).items()}, {})
    found = gather(tensors, {"quantization_config": SETTINGS | settings}, default_registry(), mx.float32)
    return found.arrays["a.weight"]


def numbers(matrix):
    return np.array(matrix if isinstance(matrix, mx.array) else matrix.numbers(mx.float32))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize(
    ("packing", "less"),
    [
        ("auto_round:auto_gptq", 1),
        ("auto_round:gptq:exllamav2", 1),
        ("auto_round:gptqmodel", 0),
        ("auto_round", 0),
        ("auto_round:exllamav2", 0),
    ],
)
def test_zero_points_are_stored_as_the_packing_says(bits, packing, less):
    *parts, groups, expected = matrix(bits)
    assert np.array_equal(
        numbers(read(gptq(*parts, groups, bits, less), bits=bits, packing_format=packing)), expected
    )


@pytest.mark.parametrize("method", ["auto-round", "intel/auto-round"])
def test_awq_packing_is_read_as_awq(method):
    *parts, _, expected = matrix()
    found = read(awq(*parts), quant_method=method, packing_format="auto_round:auto_awq")
    assert np.array_equal(numbers(found), expected)


def test_the_older_name_of_the_packing_is_read():
    *parts, groups, expected = matrix()
    found = read(gptq(*parts, groups, 4, less=0), backend="autoround:exllamav2")
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize("kind", ["mx_fp", "nv_fp"])
def test_small_floats_are_packed_as_compressed_tensors_packs_them(kind):
    draw, size = np.random.default_rng(0), 32 if kind == "mx_fp" else 16
    codes = draw.integers(0, 16, (48, 128)).astype(np.uint8)
    scales = draw.integers(120, 130, (48, 128 // size)).astype(np.uint8)
    parts = {"weight_packed": halves_in_bytes(codes), "weight_scale": scales}
    numbers_of_scales = 2.0 ** (scales.astype(np.float32) - 127)
    if kind == "nv_fp":
        scales[:] = draw.integers(40, 60, scales.shape)
        parts["weight_global_scale"] = np.array([4.0], np.float32)
        numbers_of_scales = FP8[scales] / 4
    kinds = {"weight_packed": "U8", "weight_scale": "U8" if kind == "mx_fp" else "F8_E4M3"}
    found = read(parts, kinds, data_type=kind, packing_format="auto_round:llm_compressor")
    expected = FP4[codes] * np.repeat(numbers_of_scales, size, axis=1)
    np.testing.assert_array_equal(numbers(found), expected)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            dict(packing_format="auto_round:fp8"),
            "packing_format 'auto_round:fp8' of int cannot be loaded; known: auto_",
        ),
        (dict(packing_format="auto_round:mlx"), "packing_format 'auto_round:mlx' of int cannot be loaded"),
        (dict(packing_format="auto_round:auto_gptq", data_type="mx_fp"), "'auto_round:auto_gptq' of mx_fp"),
        (dict(packing_format="auto_round:llm_compressor"), "'auto_round:llm_compressor' of int"),
        (dict(data_type="mx_int"), "data_type 'mx_int' cannot be loaded; known: int"),
        (dict(rotation_config={"size": 32}), "a rotation_config cannot be loaded"),
        (dict(spinquant_config={"r3": True}), "a spinquant_config cannot be loaded"),
    ],
)
def test_other_packings_are_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        read({}, **settings)
