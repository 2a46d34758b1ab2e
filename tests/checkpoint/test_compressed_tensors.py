"""compressed-tensors folders of every format, by packers of these tests; its own writer's are in tests/parity."""

import numpy as np
import pytest

import zoo
from zoo import runtime
from zoo.checkpoint.formats.compressed_tensors import read_compressed_tensors
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError, ConfigError

from .packers import FP4, FP8, affine_numbers, halves_in_bytes, pack_quantized

import mlx.core as mx  # isort: skip

KINDS = {"F8_E4M3": mx.uint8, "I8": mx.int8, "U8": mx.uint8}


def settings(form="pack-quantized", **weights):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return dict(quant_method="compressed-tensors", format=form, config_groups=groups, ignore=["lm_head"])


def whole(shape, groups, bits=4, symmetric=False, seed=0):
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 2**bits, shape)
    scales = draw.uniform(0.1, 0.3, (shape[0], groups.max() + 1)).astype(np.float16) / np.float16(2**bits)
    middle = np.full(scales.shape, 2 ** (bits - 1))
    zeros = middle if symmetric else draw.integers(0, 2**bits, scales.shape)
    parts = pack_quantized(codes, scales, None if symmetric else zeros, bits)
    return parts, affine_numbers(codes, scales, zeros, groups)


def in_turn(inputs, size):
    return np.arange(inputs) // size


def tensors(parts, name="a", **kinds):
    dtypes = {f"{name}.{part}": "U8" for part, value in parts.items() if value.dtype == np.uint8}
    dtypes |= {f"{name}.{part}": "I8" for part, value in parts.items() if value.dtype == np.int8}
    dtypes |= {f"{name}.{part}": kind for part, kind in kinds.items()}
    return Tensors({f"{name}.{part}": mx.array(value) for part, value in parts.items()}, dtypes, {})


def numbers(packed):
    return np.array(packed.numbers(mx.float32))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("size", "packed"), [(32, 32), (128, 128), (256, 128), (512, 128)])
def test_packed_whole_numbers(bits, symmetric, size, packed):
    if bits == 1 and runtime.backend() == "CUDA":
        pytest.skip("MLX's CUDA backend does not read one bit")
    parts, expected = whole((24, 512), in_turn(512, size), bits, symmetric)
    strategy = dict(strategy="channel") if size == 512 else dict(strategy="group", group_size=size)
    found = read_compressed_tensors(
        tensors(parts), settings(num_bits=bits, symmetric=symmetric, **strategy)
    ).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(bits, packed)
    assert np.array_equal(numbers(found), expected)


def test_what_the_tensors_show_is_believed_over_what_the_config_says():
    parts, expected = whole((24, 256), in_turn(256, 64), 8)
    found = read_compressed_tensors(tensors(parts), settings(num_bits=4, group_size=128)).arrays["a.weight"]
    assert found.quantization == QuantizationSpec(8, 64)
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize(
    ("bits", "inputs", "size"),
    [(7, 128, 32), (4, 96, 48), (4, 100, 100), (5, 30, 10), (4, 20, 16), (4, 160, 64)],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_what_mlx_does_not_hold_is_unpacked_exactly(bits, inputs, size, symmetric):
    parts, expected = whole((20, inputs), in_turn(inputs, size), bits, symmetric)
    found = read_compressed_tensors(tensors(parts), settings(num_bits=bits, group_size=size), mx.float32)
    array = found.arrays["a.weight"]
    if (inputs, size) == (160, 64):  # the last group is smaller, but a multiple of 32 as the others are
        array = array.numbers(mx.float32)
    else:
        assert found.dequantized == {"a.weight"}
    assert np.array_equal(np.array(array), expected)


def test_groups_of_scattered_inputs():
    groups = np.random.default_rng(1).permutation(in_turn(256, 64))
    parts, expected = whole((24, 256), groups)
    given = tensors(parts | {"weight_g_idx": groups.astype(np.int32)})
    found = read_compressed_tensors(given, settings(num_bits=4, group_size=64, actorder="group")).arrays[
        "a.weight"
    ]
    assert found.permutation is not None
    assert np.array_equal(numbers(found), expected)


def test_an_index_of_minus_ones_says_nothing():
    parts, expected = whole((24, 256), in_turn(256, 64))
    given = tensors(parts | {"weight_g_idx": np.full(256, -1, np.int32)})
    found = read_compressed_tensors(given, settings(num_bits=4, group_size=64)).arrays["a.weight"]
    assert found.permutation is None
    assert np.array_equal(numbers(found), expected)


@pytest.mark.parametrize("inputs", [256, 100, 6])
@pytest.mark.parametrize("scales", ["channel", "group", "tensor"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_plain_whole_numbers_of_eight_bits(inputs, scales, symmetric):
    draw = np.random.default_rng(0)
    codes = draw.integers(-128, 128, (24, inputs)).astype(np.int8)
    shape = {"channel": (24, 1), "group": (24, 2), "tensor": (1,)}[scales]
    size = inputs // 2 if scales == "group" else inputs
    scale = draw.uniform(0.01, 0.02, shape).astype(np.float32)
    zeros = np.zeros(shape, np.int8) if symmetric else draw.integers(-128, 128, shape).astype(np.int8)
    parts = {"weight": codes, "weight_scale": scale, "input_scale": scale[:1]}
    if not symmetric:
        parts["weight_zero_point"] = zeros
    wide = [np.broadcast_to(each.reshape(-1, shape[-1]), (24, shape[-1])) for each in (scale, zeros)]
    expected = affine_numbers(codes, wide[0], wide[1].astype(np.int64), in_turn(inputs, size))
    found = read_compressed_tensors(tensors(parts), settings("int-quantized", num_bits=8), mx.float32).arrays
    assert list(found) == ["a.weight"]
    if inputs == 256:
        assert found["a.weight"].quantization == QuantizationSpec(8, 128)
    array = numbers(found["a.weight"]) if inputs == 256 else np.array(found["a.weight"])
    assert np.abs(array - expected).max() <= 1e-6 * np.abs(expected).max()


def test_one_zero_point_serves_every_group():
    codes = np.random.default_rng(0).integers(-128, 128, (24, 256)).astype(np.int8)
    scale = np.full((24, 2), 0.5, np.float32)
    parts = {"weight": codes, "weight_scale": scale, "weight_zero_point": np.int8(7).reshape(())}
    form = settings("int-quantized", num_bits=8)
    found = read_compressed_tensors(tensors(parts), form, mx.float32).arrays["a.weight"]
    assert np.array_equal(numbers(found), (codes.astype(np.float32) - 7) * 0.5)


def nvfp4(shape, seed=0):
    draw = np.random.default_rng(seed)
    codes, scales = draw.integers(0, 16, shape), draw.integers(40, 120, (shape[0], shape[1] // 16))
    divisor = np.array([draw.uniform(2000, 9000)], np.float32)
    wide = np.repeat(FP8[scales], 16, 1).astype(np.float64)
    parts = {
        "weight_packed": halves_in_bytes(codes),
        "weight_scale": scales.astype(np.uint8),
        "weight_global_scale": divisor,
        "input_global_scale": np.ones(1, np.float32),
    }
    return parts, (FP4[codes] * wide / divisor).astype(np.float32)


def mxfp4(shape, seed=0):
    draw = np.random.default_rng(seed)
    codes, scales = draw.integers(0, 16, shape), draw.integers(118, 124, (shape[0], shape[1] // 32))
    parts = {"weight_packed": halves_in_bytes(codes), "weight_scale": scales.astype(np.uint8)}
    return parts, FP4[codes] * np.repeat(2.0 ** (scales - 127.0), 32, 1).astype(np.float32)


def fp8(shape, scales, seed=0):
    draw = np.random.default_rng(seed)
    codes = draw.choice(np.flatnonzero(np.isfinite(FP8)), shape).astype(np.uint8)
    scale = draw.uniform(1e-4, 1e-3, scales).astype(np.float32)
    return {"weight": codes, "weight_scale": scale}, FP8[codes] * scale


def mxfp8(shape, seed=0):
    parts, _ = fp8(shape, (1,), seed)
    scales = np.random.default_rng(seed).integers(112, 118, (shape[0], shape[1] // 32)).astype(np.uint8)
    wide = np.repeat(2.0 ** (scales - 127.0), 32, 1).astype(np.float32)
    return {"weight": parts["weight"], "weight_scale": scales}, FP8[parts["weight"]] * wide


FLOATS = {
    "nvfp4-pack-quantized": (nvfp4, dict(weight_scale="F8_E4M3"), "nvfp4"),
    "mxfp4-pack-quantized": (mxfp4, {}, "mxfp4"),
    "mxfp8-quantized": (mxfp8, dict(weight="F8_E4M3"), "mxfp8"),
    "float-quantized": (lambda shape, seed=0: fp8(shape, (1,), seed), dict(weight="F8_E4M3"), "mxfp8"),
    "naive-quantized": (
        lambda shape, seed=0: fp8(shape, (shape[0], 1), seed),
        dict(weight="F8_E4M3"),
        "mxfp8",
    ),
}


@pytest.mark.parametrize("form", FLOATS)
def test_floats_of_four_and_eight_bits(form):
    make, kinds, mode = FLOATS[form]
    parts, expected = make((24, 128))
    found = read_compressed_tensors(tensors(parts, **kinds), settings(form)).arrays
    assert list(found) == ["a.weight"] and found["a.weight"].quantization.mode == mode
    assert np.abs(numbers(found["a.weight"]) - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("form", FLOATS)
@pytest.mark.parametrize("architecture", ["llama", "mixtral"])
def test_folders_of_floats_give_the_logits_of_their_numbers(pair, form, architecture):
    make, kinds, mode = FLOATS[form]

    def one(name, shape):
        return make(shape, sum(map(ord, name))) if "layers.0." in name else None

    folder, check = pair(one, settings(form), architecture, kinds)
    layer = check(zoo.load(folder)).model.layers[0].feedforward
    assert (layer.experts.down if architecture == "mixtral" else layer.down).mode == mode


def test_fp8_of_blocks_and_of_groups_is_unpacked():
    form = settings("float-quantized", strategy="block", block_structure=[128, 128])
    codes = fp8((200, 160), (1,))[0]["weight"]
    scales = np.random.default_rng(0).uniform(1e-4, 1e-3, (200, 2)).astype(np.float32)
    blocks = np.repeat(scales[::128], 128, 0)[:200]  # of the two rows of blocks that 200 outputs are
    for scale, wide in (
        (scales[::128], np.repeat(blocks, 128, 1)[:, :160]),
        (scales, np.repeat(scales, 80, 1)),
    ):
        given = tensors({"weight": codes, "weight_scale": scale}, weight="F8_E4M3")
        found = read_compressed_tensors(given, form, mx.float32).arrays["a.weight"]
        assert np.array_equal(np.array(found), FP8[codes] * wide)


@pytest.mark.usefixtures("silent")
def test_a_folder_of_several_formats_whose_ignored_matrices_stay_as_they_are(pair):
    """Two groups and `ignore`, each by names and by regular expressions."""

    def make(name, shape):
        seed = sum(map(ord, name))
        if "down_proj" in name or ".3." in name:
            return None
        if "mlp" in name:
            return nvfp4(shape, seed)
        return whole(shape, in_turn(shape[1], 32), 8, "q_proj" in name, seed)

    config = settings("mixed-precision") | dict(ignore=["re:.*down_proj", "re:.*layers[.]3[.].*", "lm_head"])
    config["config_groups"] = {
        "first": {
            "targets": ["re:.*mlp.*"],
            "format": "nvfp4-pack-quantized",
            "weights": {"num_bits": 4, "group_size": 16},
        },
        "second": {
            "targets": ["Linear"],
            "format": "pack-quantized",
            "weights": {"num_bits": 8, "group_size": 32},
        },
    }
    folder, check = pair(make, config, kinds={"weight_scale": "F8_E4M3"}, preset="pocket")
    layers = check(zoo.load(folder)).model.layers
    assert (layers[0].feedforward.up.mode, layers[0].mixer.key.bits) == ("nvfp4", 8)
    assert "scales" not in layers[0].feedforward.down and "scales" not in layers[3].mixer.query


def test_scales_of_the_cache_are_left_out():
    given = Tensors(
        {f"a.{name}": mx.ones(1) for name in ("k_scale", "v_scale", "q_scale", "output_scale")}, {}, {}
    )
    assert not read_compressed_tensors(given, settings() | dict(kv_cache_scheme=dict(num_bits=8))).arrays


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (dict(format="marlin-24"), "format 'marlin-24'"),
        (dict(format="mxfp6-pack-quantized"), "format 'mxfp6-pack-quantized'"),
        (dict(config_groups={"a": {"format": "sparse-bitmask"}}), "format 'sparse-bitmask'"),
        (dict(config_groups=["a"]), "config_groups"),
        (dict(config_groups={"a": 1}), "config_groups"),
        (dict(sparsity_config=dict(format="sparse-24-bitmask")), "sparsity_config"),
        (dict(transform_config=dict(config_groups={})), "transform_config"),
        (dict(config_groups={"a": {"weights": {"block_structure": "2"}}}), "block_structure"),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes, word):
    with pytest.raises(ConfigError, match=r"config\.json: ") as caught:
        read_compressed_tensors(tensors({}), settings() | changes)
    assert word in str(caught.value) and "\n" not in str(caught.value)


ZEROS = np.zeros


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(weight_scale=None), "no a.weight_scale"),
        (dict(weight_shape=None), "no a.weight_shape"),
        (dict(weight_shape=np.array([24, 64])), "a.weight_shape (2,) int64"),
        (dict(weight_shape=np.array([12, 256])), "a.weight_shape"),
        (dict(weight_shape=np.array([24, -256])), "a.weight_shape"),
        (dict(weight_shape=np.array([24, 0])), "a.weight_shape"),
        (dict(weight_shape=np.array([24, 256, 1])), "a.weight_shape (3,)"),
        (dict(weight_scale=ZEROS((24, 5), np.float16)), "a.weight_scale (24, 5)"),
        (dict(weight_scale=ZEROS((23, 4), np.float16)), "a.weight_scale (23, 4)"),
        (dict(weight_scale=ZEROS((24, 4), np.int32)), "a.weight_scale (24, 4) int32"),
        (dict(weight_scale=ZEROS((24, 0), np.float16)), "a.weight_scale: an empty tensor"),
        (dict(weight_packed=ZEROS((24, 32), np.float32)), "a.weight_packed (24, 32) float32"),
        (dict(weight_packed=ZEROS(24, np.int32)), "a.weight_packed (24,)"),
        (dict(weight_zero_point=ZEROS((4, 4), np.int32)), "a.weight_zero_point (4, 4)"),
        (dict(weight_zero_point=ZEROS((24, 4), np.float16)), "a.weight_zero_point (24, 4) float16"),
        (dict(weight_g_idx=ZEROS(128, np.int32)), "a.weight_g_idx (128,)"),
        (dict(weight_g_idx=np.full(256, 4, np.int32)), "a.weight_g_idx: groups 4 to 4, but there are 4"),
        (dict(weight=ZEROS((24, 256), np.float32)), "a.weight: stands there both"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(change, word):
    parts, _ = whole((24, 256), in_turn(256, 64))
    parts = {name: value for name, value in (parts | change).items() if value is not None}
    with pytest.raises(CheckpointError) as caught:
        read_compressed_tensors(tensors(parts), settings(num_bits=4, group_size=64))
    assert word in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("form", "change", "word"),
    [
        ("nvfp4-pack-quantized", dict(weight_scale=ZEROS((24, 4), np.uint8)), "a.weight_scale (24, 4)"),
        ("nvfp4-pack-quantized", dict(weight_global_scale=ZEROS(3, np.float32)), "second scale (3,)"),
        ("nvfp4-pack-quantized", dict(weight_packed=ZEROS(64, np.uint8)), "a.weight_packed (64,)"),
        (
            "mxfp4-pack-quantized",
            dict(weight_scale=ZEROS((24, 4), np.float16)),
            "a.weight_scale (24, 4) float16",
        ),
        (
            "mxfp4-pack-quantized",
            dict(weight_packed=ZEROS((24, 0), np.uint8)),
            "a.weight_packed: an empty tensor",
        ),
        ("mxfp8-quantized", dict(weight_scale=ZEROS((24, 3), np.uint8)), "a.weight_scale (24, 3)"),
        ("float-quantized", dict(weight=None), "no a.weight of F8_E4M3 or I8"),
        ("float-quantized", dict(weight=ZEROS(5, np.uint8)), "a.weight (5,)"),
    ],
)
def test_parts_of_floats_that_do_not_belong_together_are_named(form, change, word):
    make, kinds, _ = FLOATS[form]
    parts, _ = make((24, 128))
    parts = {name: value for name, value in (parts | change).items() if value is not None}
    kinds = {part: kind for part, kind in kinds.items() if part not in change or part == "weight"}
    if form == "nvfp4-pack-quantized":
        kinds["weight_scale"] = "F8_E4M3"
    with pytest.raises(CheckpointError) as caught:
        read_compressed_tensors(tensors(parts, **kinds), settings(form))
    assert word in str(caught.value) and "\n" not in str(caught.value)
