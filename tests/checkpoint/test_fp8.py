"""FP8 folders with a scale a block: unpacked exactly and said once, or kept as MXFP8 where the scales are its own."""

import numpy as np
import pytest

import zoo
from zoo.checkpoint.formats.floats import are_powers, blockwise, exponents_of, powers_of, read_fp8
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.checkpoint.quantized_tensors import gather
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError
from zoo.host.registry import default_registry

from .packers import FP8

import mlx.core as mx  # isort: skip

SETTINGS = dict(quant_method="fp8", weight_block_size=[128, 128], activation_scheme="dynamic")
KINDS = {"weight": "F8_E4M3"}


def matrix(shape, block, seed=0, powers=False):
    """Codes (O, I), a scale for each block, and their product."""
    draw = np.random.default_rng(seed)
    codes = draw.choice(np.flatnonzero(np.isfinite(FP8)), shape).astype(np.uint8)
    grid = tuple(-(-size // step) for size, step in zip(shape, block, strict=True))
    scales = draw.uniform(1e-4, 1e-3, grid).astype(np.float32)
    if powers:
        scales = 2.0 ** draw.integers(-14, -9, grid).astype(np.float32)
    wide = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[: shape[0], : shape[1]]
    return codes, scales, FP8[codes] * wide


def tensors(codes, scales, kind="F32", name="a.weight"):
    arrays = {name: mx.array(codes), name + "_scale_inv": mx.array(scales)}
    return Tensors(arrays, {name: "F8_E4M3", name + "_scale_inv": kind}, {})


@pytest.mark.parametrize("shape", [(256, 384), (128, 256), (200, 160), (64, 300), (130, 129), (129, 5)])
def test_blocks_are_unpacked_exactly_and_said(shape):
    codes, scales, expected = matrix(shape, (128, 128))
    found = read_fp8(tensors(codes, scales), SETTINGS, mx.float32)
    assert np.array_equal(np.array(found.arrays["a.weight"]), expected)
    assert list(found.arrays) == ["a.weight"] and found.dequantized == {"a.weight"}


def test_what_is_unpacked_is_bfloat16_unless_asked_for_otherwise():
    codes, scales, expected = matrix((128, 256), (128, 128))
    found = read_fp8(tensors(codes, scales), SETTINGS).arrays["a.weight"]
    assert found.dtype == mx.bfloat16
    assert mx.array_equal(found, mx.array(expected).astype(mx.bfloat16))


@pytest.mark.parametrize("kind", ["F8_E8M0", "U8"])
@pytest.mark.parametrize(
    ("shape", "block"), [((96, 128), (32, 32)), ((200, 320), (128, 128)), ((8, 64), (1, 32))]
)
def test_exponents_for_blocks_of_whole_groups_are_mxfp8(kind, shape, block):
    codes, scales, expected = matrix(shape, block, powers=True)
    exponents = (np.log2(scales) + 127).astype(np.uint8)
    settings = SETTINGS | dict(weight_block_size=list(block), scale_fmt="ue8m0")
    found = read_fp8(tensors(codes, exponents, kind), settings).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(8, 32, "mxfp8") and found.shape == shape
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)


def test_mxfp8_by_its_own_name():
    codes, scales, expected = matrix((96, 128), (1, 32), powers=True)
    given = tensors(codes, (np.log2(scales) + 127).astype(np.uint8), "U8")
    found = gather(given, {"quantization_config": dict(quant_method="mxfp8")}, default_registry()).arrays[
        "a.weight"
    ]
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)


def test_floats_that_the_config_calls_powers_of_two_are_mxfp8_where_they_are():
    settings = SETTINGS | dict(scale_fmt="ue8m0")
    codes, scales, expected = matrix((200, 320), (128, 128), powers=True)
    found = read_fp8(tensors(codes, scales), settings).arrays["a.weight"]
    assert found.quantization.mode == "mxfp8"
    assert np.array_equal(np.array(found.numbers(mx.float32)), expected)
    scales[0, 0] *= 1.5
    assert read_fp8(tensors(codes, scales), settings).dequantized == {"a.weight"}


def test_exponents_for_blocks_that_divide_groups_are_unpacked():
    codes, scales, expected = matrix((96, 64), (16, 16), powers=True)
    exponents = (np.log2(scales) + 127).astype(np.uint8)
    found = read_fp8(tensors(codes, exponents, "U8"), SETTINGS | dict(weight_block_size=[16, 16]), mx.float32)
    assert np.array_equal(np.array(found.arrays["a.weight"]), expected)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale_for_all_multiplies_the_outputs_of_a_packed_matrix(shape):
    codes, _, _ = matrix((96, 64), (96, 64))
    scale = np.full(shape, 0.0123, np.float32)
    found = read_fp8(tensors(codes, scale), SETTINGS | dict(weight_block_size=None)).arrays["a.weight"]
    assert found.quantization.mode == "mxfp8" and found.global_scale.size == 1
    assert np.array_equal(np.array(found.numbers(mx.float32)), FP8[codes] * np.float32(0.0123))


def test_a_folder_gives_the_logits_of_its_numbers_and_one_warning(pair):
    def make(name, shape):
        codes, scales, expected = matrix(shape, (128, 128), len(name))
        return {"weight": codes, "weight_scale_inv": scales}, expected

    folder, check = pair(make, SETTINGS, kinds=KINDS, preset="pocket")
    with pytest.warns(UserWarning) as told:
        layer = check(zoo.load(folder)).model.layers[0]
    # The queries' matrix is one block, the keys' and values' less than one: as good as one scale for all.
    assert layer.mixer.query.mode == layer.mixer.key.mode == "mxfp8"
    assert [str(each.message) for each in told] == [
        "model.layers.0.mlp.down_proj.weight (and 11 more): cannot stay packed without loss, dequantized"
    ]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("architecture", ["llama", "mixtral"])
@pytest.mark.parametrize("block", [None, [32, 32]])
def test_what_mlx_holds_stays_packed_experts_too(pair, architecture, block):
    def make(name, shape):
        if "attn" in name:
            return None  # modules_to_not_convert
        seed = sum(map(ord, name))
        if block is None:
            codes, scales, expected = matrix(shape, shape, seed)
            return {
                "weight": codes,
                "weight_scale_inv": scales.reshape(()),
                "activation_scale": scales[0],
            }, expected
        codes, scales, expected = matrix(shape, block, seed, powers=True)
        exponents = (np.log2(scales) + 127).astype(np.uint8)
        return {"weight": codes, "weight_scale_inv": exponents}, expected

    settings = SETTINGS | dict(weight_block_size=block, scale_fmt="ue8m0", modules_to_not_convert=["attn"])
    folder, check = pair(
        make, settings, architecture, KINDS | {"weight_scale_inv": "F8_E8M0" if block else "F32"}
    )
    layer = check(zoo.load(folder)).model.layers[0].feedforward
    down = layer.experts.down if architecture == "mixtral" else layer.down
    assert (down.mode, down.weight.dtype) == ("mxfp8", mx.uint32)
    assert ("global_scale" in down) == (block is None)


def test_stacked_matrices_without_a_weight_of_their_own():
    pairs = [matrix((96, 64), (32, 32), seed) for seed in range(3)]
    codes, scales, expected = (np.stack(parts) for parts in zip(*pairs, strict=True))
    found = read_fp8(
        tensors(codes, scales, name="experts.up_proj"),
        SETTINGS | dict(weight_block_size=[32, 32]),
        mx.float32,
    )
    assert np.array_equal(np.array(found.arrays["experts.up_proj"]), expected)


def test_bytes_of_exponents_mean_powers_of_two():
    expected = 2.0 ** (np.arange(255) - 127.0)
    found = powers_of(mx.arange(255).astype(mx.uint8))
    assert np.array_equal(np.array(found), expected.astype(np.float32))
    assert mx.isnan(powers_of(mx.array([255], mx.uint8))).item()
    assert mx.array_equal(exponents_of(found[1:]), mx.arange(1, 255).astype(mx.uint8))


@pytest.mark.parametrize(
    ("scales", "are"),
    [
        ([1.0, 0.5, 2.0**-126], True),
        ([1.0, 1.5], False),
        ([-1.0], False),
        ([0.0], False),
        ([np.inf], False),
        ([np.nan], False),
        ([2.0**-127], False),
    ],
)
def test_which_floats_are_powers_of_two(scales, are):
    assert are_powers(mx.array(scales, mx.float32)).item() == are


def test_a_product_with_blocks_is_elementwise():
    numbers, factors = mx.ones((5, 7)), mx.arange(6).reshape(2, 3).astype(mx.float32)
    rows = [[0, 0, 0, 1, 1, 1, 2]] * 3 + [[3, 3, 3, 4, 4, 4, 5]] * 2
    assert blockwise(numbers, factors, 3, 3).tolist() == rows


@pytest.mark.parametrize("size", [128, [128], [128, 0], [128, "128"], [128, 128, 1], [True, True]])
def test_block_sizes_that_are_none(size):
    with pytest.raises(ConfigError, match="weight_block_size"):
        read_fp8(Tensors({}, {}, {}), SETTINGS | dict(weight_block_size=size))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(scales=np.zeros((2, 2), np.float32)), "a.weight_scale_inv (2, 2) float32"),
        (dict(scales=np.zeros((1, 2, 1), np.float32)), "(1, 2, 1)"),
        (dict(scales=np.zeros((1, 2), np.int32)), "int32"),
        (dict(scales=np.zeros((0, 2), np.float32)), "a.weight_scale_inv: an empty tensor"),
        (dict(codes=np.zeros(256, np.uint8)), "a.weight (256,) uint8"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(change, word):
    codes, scales, _ = matrix((100, 256), (128, 128))
    parts = dict(codes=codes, scales=scales) | change
    with pytest.raises(CheckpointError) as caught:
        read_fp8(tensors(**parts), SETTINGS)
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_a_scale_without_its_matrix_and_one_of_floats_are_named():
    lonely = Tensors({"a.weight_scale_inv": mx.ones((1, 1))}, {"a.weight_scale_inv": "F32"}, {})
    with pytest.raises(CheckpointError, match=r"a\.weight_scale_inv: no a\.weight of F8_E4M3"):
        read_fp8(lonely, SETTINGS)
    plain = tensors(np.zeros((4, 4), np.float32), np.ones((1, 1), np.float32))
    plain.dtypes["a.weight"] = "F32"
    with pytest.raises(CheckpointError, match=r"no a\.weight of F8_E4M3"):
        read_fp8(plain, SETTINGS)


@pytest.mark.parametrize("powers", [False, True])
def test_deepseeks_own_layout(pair, powers):
    """Heads are cut out of one matrix; those layers hold plain numbers, the experts packed ones."""

    def make(name, shape):
        codes, scales, expected = matrix(shape, (32, 32), sum(map(ord, name)), powers)
        return {"weight": codes, "weight_scale_inv": scales}, expected

    settings = SETTINGS | dict(weight_block_size=[32, 32], scale_fmt="ue8m0" if powers else None)
    folder, check = pair(make, settings, "deepseek-v3", KINDS)
    with pytest.warns(UserWarning, match="cannot stay packed") as told:
        layers = check(zoo.load(folder), 1e-4).model.layers
    assert len(told) == 1
    assert ("scales" in layers[-1].feedforward.experts.down) == powers
    assert "scales" not in layers[-1].mixer.key_up


@pytest.mark.parametrize("block", [(96, 128), (1, 128)], ids=["AutoFP8, one scale", "FBGEMM, one an output"])
@pytest.mark.parametrize("method", ["fp8", "fbgemm_fp8"])
def test_a_scale_that_is_named_weight_scale_stays_exact_and_packed(method, block):
    codes, scales, expected = matrix((96, 128), block)
    scales = scales if block[0] == 1 else scales.reshape(())
    unused = (
        "a.input_scale",
        "a.activation_scale",
        "a.input_scale_ub",
        "b.k_scale",
        "b.v_scale",
        "b.kv_scale",
    )
    arrays = {name: mx.array(0.5) for name in unused}
    arrays |= {"a.weight": mx.array(codes), "a.weight_scale": mx.array(scales)}
    settings = dict(quant_method=method, activation_scheme="static", ignored_layers=["lm_head"])
    found = gather(
        Tensors(arrays, {"a.weight": "F8_E4M3"}, {}), {"quantization_config": settings}, default_registry()
    )
    assert list(found.arrays) == ["a.weight"] and not found.dequantized
    packed = found.arrays["a.weight"]
    assert packed.quantization == QuantizationSpec(8, 32, "mxfp8")
    assert np.array_equal(np.array(packed.numbers(mx.float32)), expected)


def test_a_weight_scale_without_a_matrix_of_fp8_is_refused():
    arrays = {"a.weight": mx.zeros((4, 32)), "a.weight_scale": mx.array(0.5)}
    with pytest.raises(CheckpointError, match=r"a\.weight_scale: no a\.weight of F8_E4M3 beside it"):
        read_fp8(Tensors(arrays, {"a.weight": "F32", "a.weight_scale": "F32"}, {}), SETTINGS)
