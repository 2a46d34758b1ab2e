"""torchao's folders: signed codes in bytes and in halves of bytes, by the class that the file's metadata names."""

import json

import numpy as np
import pytest

from zoo.checkpoint.formats.torchao import read_torchao
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

from .packers import FP8, halves_in_bytes

import mlx.core as mx  # isort: skip

TENSORS = {"_type": "Tensor"}


def entry(kind, **values):
    return json.dumps({"_type": kind, "_data": values, "_tensor_data_names": ["qdata", "scale"]})


def parts_of(kind, outputs=48, inputs=128, group=32, bits=4):
    """The parts of a matrix, what the metadata says of it, and its numbers."""
    draw, each = np.random.default_rng(0), np.arange(inputs) // group
    scale = draw.uniform(0.01, 0.02, (outputs, inputs // group)).astype(np.float32)
    if kind == "Float8Tensor":
        codes, scale = draw.integers(0, 100, (outputs, inputs)).astype(np.uint8), scale[:, :1]
        return dict(qdata=codes, scale=scale), entry(kind), FP8[codes] * scale
    codes = draw.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (outputs, inputs)).astype(np.int8)
    if kind == "Int4Tensor":
        zero = draw.normal(size=scale.shape).astype(np.float32)
        packed = halves_in_bytes((codes & 15).astype(np.uint8)).view(np.int8)
        parts = dict(
            qdata=packed, scale=np.ascontiguousarray(scale.T), zero_point=np.ascontiguousarray(zero.T)
        )
        return parts, entry(kind, block_size=[1, group]), codes * scale[:, each] + zero[:, each]
    zero = draw.integers(-3, 3, scale.shape).astype(np.int8)
    named = dict(target_dtype={"_type": "torch.dtype", "_data": f"int{bits}"}) if bits < 8 else {}
    numbers = (codes - zero[:, each].astype(np.float32)) * scale[:, each]
    return dict(qdata=codes, scale=scale, zero_point=zero), entry(kind, **named), numbers


def tensors(parts, text, **metadata):
    arrays = {f"a._weight_{part}": mx.array(value) for part, value in parts.items()}
    kinds = {"a._weight_qdata": "F8_E4M3"} if "Float8" in text else {}
    return Tensors(arrays, kinds, {"a.weight": text, "format": "pt", **metadata})


@pytest.mark.parametrize(
    ("kind", "bits", "held"),
    [
        ("Int4Tensor", 4, 4),
        ("Int8Tensor", 8, 8),
        ("IntxUnpackedToInt8Tensor", 8, 8),
        ("IntxUnpackedToInt8Tensor", 7, 8),
        ("IntxUnpackedToInt8Tensor", 4, 4),
        ("IntxUnpackedToInt8Tensor", 3, 3),
        ("Float8Tensor", 8, 8),
    ],
)
def test_numbers_stay_packed_in_the_bits_that_they_need(kind, bits, held):
    parts, text, expected = parts_of(kind, bits=bits)
    names = json.dumps(["a.weight", "b.bias"])
    found = read_torchao(
        tensors(parts, text, tensor_names=names, **{"b.bias": json.dumps(TENSORS)}), {}, mx.float32
    )
    assert list(found.arrays) == ["a.weight"] and not found.dequantized
    packed = found.arrays["a.weight"]
    assert packed.quantization.bits == held
    np.testing.assert_allclose(np.array(packed.numbers(mx.float32)), expected, rtol=1e-5, atol=1e-5)


def test_other_classes_and_scaled_activations_are_refused_by_name():
    parts, text, _ = parts_of("Int8Tensor", bits=8)
    for kind in ("Int4TilePackedTo4dTensor", "NVFP4Tensor"):
        with pytest.raises(
            CheckpointError, match=rf"a\.weight: torchao's {kind} cannot be loaded; known: Int8Tensor"
        ):
            read_torchao(tensors(parts, entry(kind)), {})
    with pytest.raises(CheckpointError, match=r"a\._weight_act_pre_scale: scaled activations"):
        read_torchao(tensors(parts | dict(act_pre_scale=np.ones(3)), text), {})
    with pytest.raises(CheckpointError, match="not the parts of one quantized matrix"):
        read_torchao(tensors(parts | dict(zero_point=np.ones((3, 3), np.int8)), text), {})
    with pytest.raises(CheckpointError, match=r"a\.weight: no a\._weight_scale beside it"):
        read_torchao(tensors({"qdata": parts["qdata"]}, text), {})
