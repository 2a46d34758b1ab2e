"""AWQ folders: packed as MLX holds them, equal to scale · (code − zero), or refused in one line."""

import json

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.integers import read_awq
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError
from zoo.host.registry import default_registry

from .packers import affine_numbers, awq, gemv

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="awq", bits=4, group_size=64, zero_point=True, version="gemm")


def matrix(shape, group=64, seed=0, zero=None):
    draw = np.random.default_rng(seed)
    outputs, inputs = shape
    codes = draw.integers(0, 16, shape)
    scales = draw.uniform(0.005, 0.02, (outputs, inputs // group)).astype(np.float16)
    zeros = draw.integers(0, 16, scales.shape) if zero is None else np.full(scales.shape, zero)
    return codes, scales, zeros, affine_numbers(codes, scales, zeros, np.arange(inputs) // group)


def tensors(parts, name="model.layers.0.self_attn.q_proj"):
    return Tensors({f"{name}.{part}": mx.array(value) for part, value in parts.items()}, {}, {})


@pytest.mark.parametrize(
    ("inputs", "group", "packed"),
    [(128, 32, 32), (128, 64, 64), (256, 128, 128), (512, 256, 128), (192, 96, 32)],
)
def test_numbers_are_exact(inputs, group, packed):
    *parts, expected = matrix((48, inputs), group)
    found = read_awq(tensors(awq(*parts)), SETTINGS).arrays["model.layers.0.self_attn.q_proj.weight"]
    assert found.quantization == QuantizationSpec(4, packed)
    assert found.shape == (48, inputs) and found.dtype == mx.float16
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)


def test_groups_that_mlx_does_not_know_are_unpacked_and_said():
    *parts, expected = matrix((16, 96), 48)
    found = read_awq(tensors(awq(*parts), "a.b"), SETTINGS, mx.float32)
    assert np.array_equal(np.array(found.arrays["a.b.weight"]), expected)
    assert found.dequantized == {"a.b.weight"}


def test_without_zero_points_they_are_in_the_middle():
    codes, scales, zeros, expected = matrix((16, 128), zero=8)
    parts = awq(codes, scales, zeros)
    del parts["qzeros"]
    found = read_awq(tensors(parts, "a"), SETTINGS | dict(zero_point=False)).arrays["a.weight"]
    assert found.biases.dtype == mx.float16  # −8 · scale is exact in a half
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("group", [32, 128])
def test_a_folder_gives_the_logits_of_its_numbers(pair, group):
    def make(name, shape):
        if "down_proj" in name:
            return None  # as modules_to_not_convert leaves it
        *parts, numbers = matrix(shape, group, seed=len(name) + shape[0])
        return awq(*parts), numbers

    folder, check = pair(
        make, SETTINGS | dict(group_size=group, modules_to_not_convert=["down_proj"]), preset="pocket"
    )
    model = check(zoo.load(folder)).model
    assert model.layers[0].mixer.query.bits == 4
    assert model.layers[0].feedforward.down.weight.dtype == mx.float32


@pytest.mark.usefixtures("silent")
def test_experts_become_one_stack(pair):
    def make(name, shape):
        *parts, numbers = matrix(shape, 32, seed=sum(map(ord, name)))
        return awq(*parts), numbers

    folder, check = pair(make, SETTINGS | dict(group_size=32), "mixtral")
    experts = check(zoo.load(folder)).model.layers[0].feedforward.experts
    assert experts.gate.weight.shape == (4, 128, 8) and experts.gate.scales.shape == (4, 128, 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(version="marlin"), ["version 'marlin'", "gemm"]),
        (dict(version="GEMV_FAST"), ["version 'GEMV_FAST'"]),
        (dict(checkpoint_format="gemv_fast"), ["checkpoint_format 'gemv_fast'"]),
        (dict(format="llm-awq"), ["format 'llm-awq'"]),
        (dict(version=["gemm"]), ["version ['gemm']"]),
        (dict(bits=3), ["bits 3"]),
    ],
)
def test_other_layouts_are_refused_by_name(settings, words):
    with pytest.raises(ConfigError, match="awq") as caught:
        read_awq(tensors({}), SETTINGS | settings)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(scales=None), "no a.scales"),
        (dict(qzeros=None), "no a.qzeros"),
        (dict(scales=np.zeros((2, 12), np.float16)), "a.scales (2, 12) float16"),
        (dict(scales=np.zeros((3, 16), np.float16)), "a.scales (3, 16)"),
        (dict(scales=np.zeros((2, 16), np.int32)), "int32"),
        (dict(qzeros=np.zeros((2, 3), np.int32)), "a.qzeros (2, 3)"),
        (dict(qweight=np.zeros((0, 2), np.int32)), "a.qweight: an empty tensor"),
        (dict(qweight=np.zeros((128, 2), np.float32)), "a.qweight (128, 2) float32"),
        (dict(qweight=np.zeros(128, np.int32)), "a.qweight (128,)"),
        (dict(weight=np.zeros((16, 128), np.float32)), "both quantized and plain"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(change, word):
    *parts, _ = matrix((16, 128))
    parts = {name: value for name, value in (awq(*parts) | change).items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        read_awq(tensors(parts, "a"), SETTINGS)
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_the_methods_settings_may_stand_beside_the_config(pair):
    def make(name, shape):
        *parts, numbers = matrix(shape, 32)
        return awq(*parts), numbers

    folder, check = pair(make, None)
    (folder / "quant_config.json").write_text(
        json.dumps(dict(zero_point=True, q_group_size=32, w_bit=4, version="GEMM"))
    )
    check(zoo.load(folder))
    for wrong, words in ((dict(w_bit=3), "awq: bits 3"), (dict(version="marlin"), "awq: version 'marlin'")):
        (folder / "quant_config.json").write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match=f"^quant_config.json: {words} cannot be loaded"):
            zoo.load(folder)


def test_a_matrix_of_another_width_than_the_models_is_refused_and_not_read_with_other_bits():
    *parts, _ = matrix((16, 128), 32)
    found = gather(tensors(awq(*parts), "a"), {"quantization_config": SETTINGS}, default_registry()).arrays[
        "a.weight"
    ]
    assert isinstance(found, QuantizedMatrix)
    with pytest.raises(CheckpointError, match=r"a\.weight: rows of 128 numbers, not 64"):
        found.resolved(64)


@pytest.mark.parametrize(
    ("inputs", "group", "packed"), [(128, 32, 32), (192, 64, 64), (256, 128, 128), (256, -1, 128)]
)
def test_numbers_of_the_gemv_layout_are_exact(inputs, group, packed):
    *parts, expected = matrix((48, inputs), inputs if group < 0 else group)
    settings = SETTINGS | dict(version="GEMV", group_size=group)
    found = read_awq(tensors(gemv(*parts), "a"), settings).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(4, packed)
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)


def test_the_padded_rows_of_the_gemv_layout_need_a_size_of_their_groups():
    parts = tensors(gemv(*matrix((48, 128))[:3]), "a")
    with pytest.raises(ConfigError, match=r"group_size None does not divide the 128 inputs of a\.qweight"):
        read_awq(parts, dict(quant_method="awq", version="gemv"))
    with pytest.raises(ConfigError, match="version 'gemv_fast' cannot be loaded; known: gemm, gemv"):
        read_awq(parts, SETTINGS | dict(version="gemv_fast"))
