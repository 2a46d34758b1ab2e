"""GPTQ folders: both layouts of the zero point, groups in turn and scattered, packed exactly or unpacked exactly."""

import json

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.integers import read_gptq
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError

from .packers import affine_numbers, bits_in_words, gptq

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="gptq", bits=4, group_size=64, desc_act=False, sym=False)


def matrix(shape, groups, bits=4, seed=0, symmetric=False):
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 2**bits, shape)
    scales = draw.uniform(0.1, 0.3, (shape[0], groups.max() + 1)).astype(np.float16) / np.float16(2**bits)
    # AutoGPTQ's packer writes a zero point of 0 over its neighbours, so that none is 0 in a sound file.
    zeros = np.full(scales.shape, 2 ** (bits - 1)) if symmetric else draw.integers(1, 2**bits, scales.shape)
    return codes, scales, zeros, affine_numbers(codes, scales, zeros, groups)


def in_turn(inputs, size):
    return np.arange(inputs) // size


def mixed(inputs, size, seed=0):
    return np.random.default_rng(seed).permutation(in_turn(inputs, size))


def tensors(parts, name="a"):
    return Tensors({f"{name}.{part}": mx.array(value) for part, value in parts.items()}, {}, {})


def numbers(packed):
    return np.array(packed.numbers(mx.float32))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("layout", "less"), [("gptq", 1), ("gptq_v2", 0)])
def test_numbers_are_exact_in_both_layouts(bits, layout, less):
    groups = in_turn(256, 64)
    *parts, expected = matrix((96, 256), groups, bits)
    found = read_gptq(tensors(gptq(*parts, groups, bits, less)), SETTINGS | dict(checkpoint_format=layout))
    packed = found.arrays["a.weight"]
    assert packed.quantization == QuantizationSpec(bits, 64) and packed.permutation is None
    assert packed.biases.dtype == mx.float32 and packed.dtype == mx.float16
    assert np.array_equal(numbers(packed), expected)


def test_a_zero_point_of_zero_is_stored_as_the_largest_number():
    groups = in_turn(128, 64)
    codes, scales, zeros, _ = matrix((32, 128), groups)
    zeros[:, 1] = 0
    found = read_gptq(tensors(gptq(codes, scales, zeros, groups, 4)), SETTINGS).arrays["a.weight"]
    assert np.array_equal(numbers(found), affine_numbers(codes, scales, zeros, groups))


@pytest.mark.parametrize("stored", [7, 8])
def test_symmetric_zero_points_are_in_the_middle_whichever_layout_the_config_names(stored):
    groups = in_turn(128, 32)
    *parts, expected = matrix((32, 128), groups, symmetric=True)
    for layout in ("gptq", "gptq_v2"):
        settings = SETTINGS | dict(sym=True, checkpoint_format=layout)
        found = read_gptq(tensors(gptq(*parts, groups, 4, less=8 - stored)), settings).arrays["a.weight"]
        assert found.biases.dtype == mx.float16
        assert np.array_equal(numbers(found), expected)


def test_a_config_that_calls_others_symmetric_is_not_believed():
    groups = in_turn(128, 32)
    *parts, expected = matrix((32, 128), groups)
    found = read_gptq(tensors(gptq(*parts, groups, 4)), SETTINGS | dict(sym=True)).arrays["a.weight"]
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize(
    ("inputs", "size", "packed"),
    [(256, 128, 128), (256, 32, 32), (512, 256, 128), (384, 384, 128), (160, 160, 32), (192, 128, 64)],
)
@pytest.mark.parametrize("index", [True, False])
def test_groups_in_turn_of_any_size_that_32_divides(inputs, size, packed, index):
    groups = in_turn(inputs, size)
    *parts, expected = matrix((32, inputs), groups)
    written = gptq(*parts, groups, 4)
    if not index:
        del written["g_idx"]
    config = SETTINGS | dict(group_size=-1 if size == inputs else size)
    found = read_gptq(tensors(written), config).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(4, packed) and found.permutation is None
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("inputs", "size", "packed"), [(256, 128, 128), (256, 64, 64), (192, 128, 64)])
def test_scattered_groups_are_put_in_turn_by_permuting_inputs(bits, inputs, size, packed):
    groups = mixed(inputs, size)
    *parts, expected = matrix((32, inputs), groups, bits)
    found = read_gptq(tensors(gptq(*parts, groups, bits)), SETTINGS | dict(desc_act=True)).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(bits, packed)
    assert np.array_equal(groups[np.array(found.permutation)], np.sort(groups))
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_scattered_groups_of_unequal_sizes_are_unpacked_exactly_and_said(bits):
    groups = np.random.default_rng(0).integers(0, 4, 256)
    *parts, expected = matrix((32, 256), groups, bits)
    found = read_gptq(tensors(gptq(*parts, groups, bits)), SETTINGS | dict(desc_act=True), mx.float32)
    assert np.array_equal(np.array(found.arrays["a.weight"]), expected)
    assert found.dequantized == {"a.weight"}


def test_what_is_unpacked_is_a_half_unless_another_dtype_is_asked_for():
    groups = np.random.default_rng(0).integers(0, 4, 64)
    *parts, _ = matrix((32, 64), groups)
    for kinds, expected in (({"norm": "F16"}, mx.float16), ({"norm": "BF16"}, mx.bfloat16)):
        given = Tensors(tensors(gptq(*parts, groups, 4)).arrays, kinds, {})
        assert read_gptq(given, SETTINGS).arrays["a.weight"].dtype == expected


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("desc_act", [False, True])
@pytest.mark.parametrize(("bits", "symmetric"), [(4, True), (4, False), (8, False)])
def test_a_folder_gives_the_logits_of_its_numbers(pair, bits, symmetric, desc_act):
    def make(name, shape):
        if ".0." not in name:
            return None
        groups = mixed(shape[1], 32, len(name)) if desc_act else in_turn(shape[1], 32)
        *parts, exact = matrix(shape, groups, bits, sum(map(ord, name)), symmetric)
        return gptq(*parts, groups, bits), exact

    settings = SETTINGS | dict(bits=bits, group_size=32, desc_act=desc_act, sym=symmetric)
    folder, check = pair(make, settings)
    layer = check(zoo.load(folder)).model.layers[0]
    assert layer.feedforward.down.bits == bits
    assert ("permutation" in layer.mixer.query) == desc_act


@pytest.mark.parametrize("desc_act", [False, True])
def test_experts_become_one_stack_and_scattered_ones_are_unpacked(pair, desc_act, recwarn):
    def make(name, shape):
        groups = mixed(shape[1], 32, len(name)) if desc_act else in_turn(shape[1], 32)
        *parts, exact = matrix(shape, groups, seed=sum(map(ord, name)))
        return (gptq(*parts, groups, 4), exact) if "experts" in name and ".0.block" in name else None

    folder, check = pair(make, SETTINGS | dict(group_size=32), "mixtral")
    experts = check(zoo.load(folder)).model.layers[0].feedforward.experts
    told = [str(warning.message) for warning in recwarn.list]
    if desc_act:
        assert experts.gate.weight.shape == (4, 128, 64)
        assert len(told) == 1 and "(and 11 more): cannot stay packed" in told[0]
    else:
        assert experts.gate.weight.shape == (4, 128, 8) and not told


def test_a_folder_without_settings_in_its_config(pair):
    def make(name, shape):
        groups = in_turn(shape[1], 128)
        *parts, exact = matrix(shape, groups)
        return (gptq(*parts, groups, 4), exact) if ".0." in name else None

    folder, check = pair(make, None)
    (folder / "quantize_config.json").write_text(json.dumps(dict(bits=4, group_size=128, sym=False)))
    check(zoo.load(folder))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (dict(checkpoint_format="marlin"), "checkpoint_format 'marlin'"),
        (dict(is_marlin_format=True), "checkpoint_format 'marlin'"),
        (dict(format="bitblas"), "checkpoint_format 'bitblas'"),
        (dict(checkpoint_format=2), "checkpoint_format 2"),
    ],
)
def test_other_layouts_are_refused_by_name(settings, word):
    with pytest.raises(ConfigError, match="gptq") as caught:
        read_gptq(tensors({}), SETTINGS | settings)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(scales=None), "no a.scales"),
        (dict(qzeros=None), "no a.qzeros"),
        (dict(scales=np.zeros((2, 48), np.float16)), "a.scales (2, 48) float16"),
        (dict(scales=np.zeros((2, 32), np.int32)), "a.scales (2, 32) int32"),
        (dict(qzeros=np.zeros((2, 3), np.int32)), "a.qzeros (2, 3)"),
        (dict(qzeros=np.zeros((2, 5), np.int32)), "a.qzeros (2, 5)"),
        (dict(qzeros=np.zeros((0, 4), np.int32)), "a.qzeros: an empty tensor"),
        (dict(qweight=np.zeros((16, 32), np.float16)), "a.qweight (16, 32) float16"),
        (dict(g_idx=np.zeros(64, np.int32)), "a.g_idx (64,) int32"),
        (dict(g_idx=np.zeros(128, np.float32)), "a.g_idx (128,) float32"),
        (dict(g_idx=np.full(128, 2, np.int32)), "a.g_idx: groups 2 to 2, but there are 2"),
        (dict(g_idx=np.arange(-1, 127, dtype=np.int32) // 64), "a.g_idx: groups -1 to 1"),
        (dict(weight=np.zeros((32, 128), np.float32)), "a.weight: stands there both"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(change, word):
    groups = in_turn(128, 64)
    *parts, _ = matrix((32, 128), groups)
    parts = {name: value for name, value in (gptq(*parts, groups, 4) | change).items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        read_gptq(tensors(parts), SETTINGS)
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_eight_inputs_of_four_bits_stand_in_a_word_the_first_in_its_lowest():
    assert bits_in_words(np.arange(8)[None], 4).view(np.uint32).tolist() == [[0x76543210]]
