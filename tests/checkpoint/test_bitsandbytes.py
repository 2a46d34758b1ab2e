"""bitsandbytes' folders: four bits by a table, with factors of factors or without, and eight bits, by hand."""

import json

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.bitsandbytes import read_bitsandbytes
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

import mlx.core as mx  # isort: skip

STATE = "weight.quant_state.bitsandbytes__nf4"
TABLE = np.sort(np.random.default_rng(1).normal(size=16)).astype(np.float32)
WIDE = np.sort(np.random.default_rng(2).normal(size=256)).astype(np.float32)


def four_bits(shape, block=64, nested=False, seed=0):
    """The parts of a matrix, and its numbers: `block` codes after another have a factor, across the ends of rows."""
    draw, size = np.random.default_rng(seed), int(np.prod(shape))
    codes, blocks = draw.integers(0, 16, size), -(-size // block)
    factors = draw.uniform(0.02, 0.1, blocks).astype(np.float32)
    state = dict(quant_type="nf4", blocksize=block, dtype="bfloat16", shape=list(shape))
    parts = {"weight": (codes[::2] << 4 | codes[1::2]).astype(np.uint8)[:, None], "weight.quant_map": TABLE}
    parts["weight.absmax"] = factors
    if nested:
        quantized = draw.integers(0, 256, blocks).astype(np.uint8)
        outer = draw.uniform(0.01, 0.02, -(-blocks // 256)).astype(np.float32)
        state |= dict(nested_blocksize=256, nested_dtype="float32", nested_offset=0.05)
        parts |= {"weight.absmax": quantized, "weight.nested_absmax": outer, "weight.nested_quant_map": WIDE}
        factors = WIDE[quantized] * np.repeat(outer, 256)[:blocks] + np.float32(0.05)
    parts[STATE] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return parts, (TABLE[codes] * np.repeat(factors, block)[:size]).reshape(shape)


def eight_bits(shape, seed=0):
    draw = np.random.default_rng(seed)
    codes, scales = draw.integers(-127, 128, shape).astype(np.int8), draw.uniform(0.05, 0.2, shape[0])
    parts = {"weight": codes, "SCB": scales.astype(np.float32), "weight_format": np.array(0, np.uint8)}
    return parts, (codes * scales[:, None] / 127).astype(np.float32)


def tensors(parts):
    return Tensors({f"a.{part}": mx.array(value) for part, value in parts.items()}, {}, {})


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("shape", [(96, 384), (50, 36), (1, 2)])
def test_four_bits_are_unpacked(shape, nested):
    parts, expected = four_bits(shape, nested=nested)
    found = read_bitsandbytes(tensors(parts), {}, mx.float32)
    assert list(found.arrays) == ["a.weight"] and found.dequantized == {"a.weight"}
    np.testing.assert_allclose(np.array(found.arrays["a.weight"]), expected, rtol=1e-6)


def test_bytes_that_are_stored_as_another_dtype_are_the_same():
    parts, expected = four_bits((96, 384))
    stored = tensors(parts)
    stored.arrays["a.weight"] = stored.arrays["a.weight"].flatten().view(mx.bfloat16)[:, None]
    found = read_bitsandbytes(stored, {}, mx.float32).arrays["a.weight"]
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-6)


@pytest.mark.parametrize("inputs", [128, 96, 36])
def test_eight_bits_are_exact(inputs):
    parts, expected = eight_bits((48, inputs))
    found = read_bitsandbytes(tensors(parts), {}, mx.float32).arrays["a.weight"]
    assert isinstance(found, mx.array) == (inputs == 36)  # which no group of MLX divides
    numbers = found if inputs == 36 else found.numbers(mx.float32)
    np.testing.assert_allclose(np.array(numbers), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*cannot stay packed")
@pytest.mark.parametrize("make", [four_bits, eight_bits])
def test_a_folder_of_it_is_loaded(pair, make):
    flag = "load_in_4bit" if make is four_bits else "load_in_8bit"
    folder, check = pair(lambda name, shape: make(shape), {"quant_method": "bitsandbytes", flag: True})
    check(zoo.load(folder), 1e-4)


def damaged(parts, **changes):
    parts = {name: value for name, value in (parts | changes).items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        read_bitsandbytes(tensors(parts), {})
    return str(caught.value)


def test_what_does_not_belong_together_is_refused():
    parts, _ = four_bits((96, 384), nested=True)
    for part in ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map"):
        whole = {part: parts[part][:1]}
        assert "a.weight" in damaged(parts, **whole) and "not the parts of one" in damaged(parts, **whole)
    assert "not a JSON text" in damaged(parts, **{STATE: np.arange(9, dtype=np.uint8)})
    for state in ("[]", "{}", '{"shape": [-1, 2], "blocksize": 64}', '{"shape": [2, 2], "blocksize": 0}'):
        text = np.frombuffer(state.encode(), np.uint8)
        assert f"a.{STATE}: names no shape" in damaged(parts, **{STATE: text})
    assert f"a.{STATE}: no a.weight beside it" in damaged(parts, weight=None)
    eight, _ = eight_bits((48, 128))
    assert "a.weight_format: 1" in damaged(eight, weight_format=np.array(1, np.uint8))
    assert "not the parts of one" in damaged(eight, SCB=np.ones(3, np.float32))
