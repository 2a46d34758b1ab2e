"""AutoRound's folders: packed as GPTQ or AWQ packs, by the name that their config gives the packing."""

import numpy as np
import pytest

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import ConfigError
from zoo.host.registry import default_registry

from .packers import affine_numbers, awq, gptq

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="auto-round", bits=4, group_size=64, sym=False, data_type="int")


def matrix(bits=4, outputs=64, inputs=256, group=64):
    draw = np.random.default_rng(bits)
    groups = np.arange(inputs) // group
    codes = draw.integers(0, 2**bits, (outputs, inputs))
    scales = draw.uniform(0.005, 0.02, (outputs, inputs // group)).astype(np.float16)
    zeros = draw.integers(1, 2**bits, scales.shape)
    return codes, scales, zeros, groups, affine_numbers(codes, scales, zeros, groups)


def read(parts, **settings):
    tensors = Tensors(
        {f"a.{part}": mx.array(value) for part, value in parts.items() if part != "g_idx"}, {}, {}
    )
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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            dict(packing_format="auto_round:fp8"),
            "packing_format 'auto_round:fp8' cannot be loaded; known: auto_round",
        ),
        (dict(packing_format="auto_round:mlx"), "packing_format 'auto_round:mlx' cannot be loaded"),
        (dict(data_type="mx_fp"), "data_type 'mx_fp' cannot be loaded; known: int"),
        (dict(rotation_config={"size": 32}), "a rotation_config cannot be loaded"),
    ],
)
def test_other_packings_are_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        read({}, **settings)
