"""bitsandbytes' folders by its own code: written by its layers, compared with what its functions make of them."""

import bitsandbytes as bnb
import numpy as np
import pytest
import torch

from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.host.registry import default_registry

import mlx.core as mx  # isort: skip

SHAPE = (96, 384)  # 576 blocks of 64: the last nested block of 256 factors is not full


def as_tensors(state, name="a"):
    """A layer's state as a folder has it."""
    return Tensors({f"{name}.{key}": mx.array(value.numpy()) for key, value in state.items()}, {}, {})


def read(tensors, **settings):
    config = {"quantization_config": dict(quant_method="bitsandbytes", **settings)}
    return gather(tensors, config, default_registry(), mx.float32)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("block", [64, 128])
def test_four_bits_are_the_numbers_that_it_makes_of_them(kind, nested, block):
    torch.manual_seed(0)
    weight = torch.randn(SHAPE) * 0.05
    codes, state = bnb.functional.quantize_4bit(
        weight, blocksize=block, quant_type=kind, compress_statistics=nested
    )
    parts = {"weight": codes} | {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    found = read(as_tensors(parts), load_in_4bit=True)
    expected = bnb.functional.dequantize_4bit(codes, state)
    assert list(found.arrays) == ["a.weight"] and found.dequantized == {"a.weight"}
    np.testing.assert_allclose(np.array(found.arrays["a.weight"]), expected.numpy(), rtol=1e-6, atol=1e-8)


def test_eight_bits_stay_packed():
    torch.manual_seed(0)
    codes, scales, _ = bnb.functional.int8_vectorwise_quant((torch.randn(SHAPE) * 0.05).half())
    parts = {"weight": codes, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    found = read(as_tensors(parts), load_in_8bit=True)
    expected = bnb.functional.int8_vectorwise_dequant(codes, scales)
    packed = found.arrays["a.weight"]
    assert list(found.arrays) == ["a.weight"] and packed.quantization.bits == 8
    np.testing.assert_allclose(
        np.array(packed.numbers(mx.float32)), expected.float().numpy(), rtol=1e-5, atol=1e-6
    )
