"""Formats in the folders of families that fuse, stack and rename matrices, and configs that name them otherwise or not."""

import numpy as np
import pytest

import zoo
from zoo.errors import CheckpointError

from .packers import FP8, awq, gptq, pack_quantized
from .test_bitsandbytes import eight_bits, four_bits
from .test_hqq import hqq


def one_scale(shape, rows=1):
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 90, shape).astype(np.uint8)
    scales = draw.uniform(0.01, 0.02, (rows, 1)).astype(np.float32)
    return {"weight": codes, "weight_scale": scales if rows > 1 else scales[0]}, FP8[codes] * scales


FORMATS = {
    "four bits": (
        lambda shape: four_bits(shape, nested=True),
        dict(quant_method="bitsandbytes", load_in_4bit=True),
    ),
    "eight bits": (eight_bits, dict(quant_method="bitsandbytes", load_in_8bit=True)),
    "hqq": (hqq, dict(quant_method="hqq")),
    "AutoFP8": (one_scale, dict(quant_method="fp8", activation_scheme="static")),
    "FBGEMM": (lambda shape: one_scale(shape, shape[0]), dict(quant_method="fbgemm_fp8")),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*cannot stay packed")
@pytest.mark.parametrize(
    "architecture", ["mixtral", "qwen3-moe", "deepseek-v3", "phi3", "glm4", "qwen3-next", "jamba"]
)
@pytest.mark.parametrize("name", FORMATS)
def test_the_logits_are_those_of_the_numbers(pair, name, architecture):
    make, settings = FORMATS[name]
    folder, check = pair(
        lambda name, shape: make(shape),
        settings,
        architecture=architecture,
        kinds={"weight": "F8_E4M3"} if "F" in name else (),
    )
    check(zoo.load(folder), 1e-4)


def four_bit_codes(shape, seed=0):
    """Codes, scales and zero points of a matrix, in groups of 32 inputs."""
    draw = np.random.default_rng(seed)
    scales = draw.uniform(0.001, 0.002, (shape[0], shape[1] // 32)).astype(np.float16)
    return draw.integers(0, 16, shape), scales, draw.integers(1, 16, scales.shape)


def test_settings_may_be_called_compression_config(pair):
    def make(name, shape):
        codes, scales, _ = four_bit_codes(shape)
        numbers = (codes - 8.0) * np.repeat(scales.astype(np.float32), 32, axis=1)
        return pack_quantized(codes, scales.astype(np.float32), None, 4), numbers.astype(np.float32)

    settings = dict(quant_method="compressed-tensors", format="pack-quantized", config_groups={})
    folder, check = pair(make, None, changes={"compression_config": settings})
    check(zoo.load(folder))


@pytest.mark.parametrize("kind", ["gptq", "awq", "compressed-tensors", "bitsandbytes", "hqq"])
def test_quantized_tensors_without_a_method_are_named(pair, kind):
    def make(name, shape):
        codes, scales, zeros = four_bit_codes(shape)
        parts = {
            "gptq": lambda: gptq(codes, scales, zeros, np.arange(shape[1]) // 32, 4),
            "awq": lambda: awq(codes, scales, zeros),
            "compressed-tensors": lambda: pack_quantized(codes, scales, None, 4),
            "bitsandbytes": lambda: four_bits(shape)[0],
            "hqq": lambda: hqq(shape)[0],
        }
        return parts[kind](), np.zeros(shape, np.float32)

    folder, _ = pair(make, None)
    with pytest.raises(
        CheckpointError, match=r"\S+ is of a quantized matrix, but config.json has no quantization_config"
    ):
        zoo.load(folder)
