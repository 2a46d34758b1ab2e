"""HQQ's folders, their grids of groups packed by hand: rows of a grid's parts share a byte."""

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.hqq import read_hqq
from zoo.checkpoint.formats.integers import pack, unpack
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

import mlx.core as mx  # isort: skip

ROWS = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}


def hqq(shape, bits=4, group=32, axis=1, seed=0):
    """The parts of a matrix, and its numbers."""
    draw, (outputs, inputs) = np.random.default_rng(seed), shape
    groups = outputs * inputs // group
    grid = draw.integers(0, 2**bits, (groups, group) if axis else (group, groups))
    one_a_group = (groups, 1) if axis else (1, groups)
    scales = draw.uniform(0.01, 0.02, one_a_group).astype(np.float32)
    zeros = draw.uniform(0, 2**bits, one_a_group).astype(np.float32)
    rows = ROWS[bits]
    filled = np.pad(grid, [(0, -len(grid) % rows), (0, 0)])
    tenths = filled.reshape(rows, -1, filled.shape[1])
    whole = sum(part << bits * (rows - 1 - place) for place, part in enumerate(tenths))
    parts = {
        "W_q": whole.astype(np.int32 if bits == 3 else np.uint8),
        **dict(scale=scales, zero=zeros, shape=np.array(shape), axis=np.array(axis, np.int32)),
        **dict(nbits=np.array(bits, np.int32), group_size=np.array(group, np.int32)),
        "packing": np.frombuffer(b"3bit_32" if bits == 3 else b"%dbit_u8" % bits, np.uint8),
        **dict.fromkeys(("quant_scale", "quant_zero", "view_as_float"), np.array(0, np.uint8)),
    }
    return parts, ((grid - zeros) * scales).reshape(shape).astype(np.float32)


def tensors(parts):
    return Tensors({f"a.{part}": mx.array(value) for part, value in parts.items()}, {}, {})


@pytest.mark.parametrize("bits", ROWS)
@pytest.mark.parametrize("axis", [1, 0])
def test_numbers_are_those_of_the_grid(bits, axis):
    parts, expected = hqq((48, 96), bits, axis=axis)
    found = read_hqq(tensors(parts), {}, mx.float32)
    assert list(found.arrays) == ["a.weight"] and bool(found.dequantized) == (axis == 0)
    matrix = found.arrays["a.weight"]
    numbers = matrix if axis == 0 else matrix.numbers(mx.float32)
    np.testing.assert_allclose(np.array(numbers), expected, rtol=1e-5, atol=1e-5)


def test_a_folder_of_it_is_loaded(pair):
    folder, check = pair(lambda name, shape: hqq(shape), {"quant_method": "hqq"})
    check(zoo.load(folder), 1e-4)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            dict(packing=np.frombuffer(b"4bit_32", np.uint8)),
            r"a\.packing: '4bit_32' cannot be loaded; known: 8bit",
        ),
        (dict(quant_zero=np.array(1, np.uint8)), r"a\.quant_zero: scales or zero points that are quantized"),
        (dict(shape=np.array([48, 97])), "not the parts of one quantized matrix"),
        (dict(zero=np.ones(3, np.float32)), "not the parts of one quantized matrix"),
    ],
)
def test_what_is_not_known_or_does_not_fit_is_refused(changes, line):
    with pytest.raises(CheckpointError, match=line):
        read_hqq(tensors(hqq((48, 96))[0] | changes), {})


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8])
def test_packed_numbers_are_unpacked_to_the_same(bits):
    codes = mx.array(np.random.default_rng(0).integers(0, 2**bits, (3, 96)))
    assert mx.array_equal(unpack(pack(codes, bits), bits)[:, :96], codes)
