"""Weights that are no numbers: found by whatever reads them, and named with their file."""

import json
import math

import pytest

from tests.helpers import gguf_files

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.finite import evaluate, finite
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.testing import subject

QUERY = "model.layers.1.self_attn.q_proj"
BAD = [math.nan, -math.nan, math.inf, -math.inf]


@pytest.fixture(scope="module")
def made():
    return subject("llama", "pocket")


@pytest.fixture
def folder(made, tmp_path):
    path = tmp_path / "model"
    save(path, made.model, made.architecture, made.recipe, made.numbers)
    return path


def change(folder, changes, dtype=None, file="model.safetensors"):
    """Put functions of tensors in the place of them, by name, and cast all."""
    tensors = dict(mx.load(str(folder / file)))
    for name, one in changes.items():
        tensors[name] = one(tensors[name])
    if dtype is not None:
        tensors = {
            name: array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) else array
            for name, array in tensors.items()
        }
    mx.eval(tensors)
    (folder / file).unlink()
    mx.save_safetensors(str(folder / file), tensors, {"format": "mlx"})


def spoilt(value, place=7):
    """A function that puts one wrong number into a tensor."""

    def put(array):
        flat = array.reshape(-1)
        flat[place] = value
        return flat.reshape(array.shape)

    return put


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("shape", [(3,), (5, 64), (2, 3, 32)])
def test_one_wrong_number_is_found_wherever_it_is(value, dtype, shape):
    good = mx.random.normal(shape, key=mx.random.key(1)).astype(dtype)
    assert evaluate({"a": good}) is None and finite(good)
    for place in (0, good.size // 2, good.size - 1):
        bad = spoilt(value, place)(good)
        assert evaluate({"a": good, "b": bad, "c": bad}) == "b" and not finite(bad)


def test_the_largest_numbers_are_numbers():
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        most = mx.finfo(dtype).max
        for sign in (1, -1):
            assert evaluate({"a": mx.full((4, 64), sign * most, dtype)}) is None  # their sum is none
    assert evaluate({"a": mx.zeros((0,)), "b": mx.zeros((0,), mx.float16), "c": mx.array([1, 2])}) is None


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    "quantization",
    [
        QuantizationSpec(4, 64),
        *(
            QuantizationSpec(b, g, m)
            for m, (b, g) in (("mxfp4", (4, 32)), ("nvfp4", (4, 16)), ("mxfp8", (8, 32)))
        ),
    ],
    ids=lambda quantization: quantization.mode,
)
def test_packing_does_not_make_numbers_of_what_is_none(value, quantization):
    matrix = mx.random.normal((4, 64), key=mx.random.key(2))
    assert evaluate({"a": quantize_matrix("a", matrix, quantization)}) is None
    assert evaluate({"a": quantize_matrix("a", spoilt(value)(matrix), quantization)}) == "a"


def test_numbers_of_eight_bits_may_be_none():
    good = quantize_matrix("a", mx.ones((2, 64)), QuantizationSpec(8, 32, "mxfp8"))
    words = good.weight.view(mx.uint8)
    words[1, 5] = 0xFF
    assert (
        evaluate(
            {
                "a": good,
                "b": QuantizedMatrix("b", words.view(mx.uint32), good.scales, None, good.quantization),
            }
        )
        == "b"
    )


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_a_folder_is_refused_by_load_and_convert(folder, tmp_path, value, dtype):
    name = f"{QUERY}.weight"
    change(folder, {name: spoilt(value)}, dtype)
    words = rf"model/model\.safetensors: tensor {name} holds NaN or infinity"
    with pytest.raises(ZooError, match=words):
        zoo.load(folder)
    for settings in ({}, {"quantize": "4"}, {"quantize": "mxfp4"}, {"layout": "hf"}, {"dtype": "float16"}):
        with pytest.raises(ZooError, match=words):
            convert(folder, tmp_path / "new", **settings)
        assert not (tmp_path / "new").exists()


def test_the_shard_is_named(folder, tmp_path):
    convert(folder, tmp_path / "shards", shard=50_000)
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())["weight_map"]
    file = index["model.norm.weight"]
    change(tmp_path / "shards", {"model.norm.weight": spoilt(math.nan)}, file=file)
    with pytest.raises(ZooError, match=rf"{file}: tensor model\.norm\.weight"):
        zoo.load(tmp_path / "shards")


@pytest.mark.parametrize("part", ["scales", "biases"])
def test_a_quantized_folder_is_refused(folder, tmp_path, part):
    convert(folder, tmp_path / "four", quantize="4", group_size=32)
    change(tmp_path / "four", {f"{QUERY}.{part}": spoilt(math.inf, 1)})
    words = rf"four/model\.safetensors: tensor {QUERY}\.{part} holds"
    with pytest.raises(ZooError, match=words):
        zoo.load(tmp_path / "four")
    with pytest.raises(ZooError, match=words):
        convert(tmp_path / "four", tmp_path / "new", quantize="none")


@pytest.mark.parametrize("mode", ["mxfp4", "nvfp4"])
def test_a_scale_of_eight_bits_that_is_none_is_refused(folder, tmp_path, mode):
    convert(folder, tmp_path / "four", quantize=mode)
    change(tmp_path / "four", {f"{QUERY}.scales": spoilt(0xFF, 1)})
    for call in (zoo.load, lambda path: convert(path, tmp_path / "new")):
        with pytest.raises(ZooError, match=r"four: .*(q_proj|query).* comes to hold NaN or infinity"):
            call(tmp_path / "four")


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # as the file is written
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_a_gguf_file_is_refused(folder, tmp_path, kind):
    path = gguf_files.write(tmp_path / "model.gguf", folder, kind)
    assert open_checkpoint(path, default_registry()).find_not_finite() is None
    change(folder, {f"{QUERY}.weight": spoilt(math.nan)})
    path = gguf_files.write(tmp_path / "model.gguf", folder, kind)
    for call in (zoo.load, lambda path: convert(path, tmp_path / "new")):
        with pytest.raises(ZooError, match=r"model\.gguf: tensor blk\.1\.attn_q\.weight holds NaN"):
            call(path)


def test_what_a_smaller_float_cannot_hold_is_told_apart(folder):
    change(folder, {f"{QUERY}.weight": spoilt(1e30)})
    zoo.load(folder)
    with pytest.raises(
        ZooError, match=r"layers\.1\.mixer\.query\.weight comes to hold .* too large for float16"
    ):
        zoo.load(folder, dtype="float16")


def adapter(folder, tensors, scale="1.0", kind="lora"):
    folder.mkdir()
    mx.save_safetensors(str(folder / "adapters.safetensors"), tensors)
    told = f'{{"fine_tune_type": "{kind}", "lora_parameters": {{"scale": {scale}}}}}'
    (folder / "adapter_config.json").write_text(told)
    return folder


def low_rank(down, up, dtype=mx.float32, **more):
    tensors = {"lora_a": mx.zeros(down, dtype), "lora_b": mx.zeros(up, dtype), **more}
    return {f"{QUERY}.{part}": tensor for part, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("tensors", "settings", "words"),
    [
        (low_rank((128, 2), (2, 128), lora_b=mx.full((2, 128), math.nan)), {}, "q_proj.lora_b holds NaN"),
        (low_rank((128, 2), (2, 128)), {"scale": "1e999"}, "lora_parameters.scale"),
        (low_rank((128, 2), (2, 128)), {"scale": "NaN"}, "adapter_config.json"),
        (low_rank((128, 2), (2, 128), mx.int32), {}, "q_proj.lora_a of mlx.core.int32, where floats belong"),
        (low_rank((100_000, 0), (0, 100_000)), {}, "q_proj.lora_a of shape (100000, 0)"),
        (low_rank((128, 0), (0, 128)), {}, "q_proj.lora_a of shape (128, 0)"),
        (low_rank((4, 0, 0), (0, 0, 0)), {}, "of shape (4, 0, 0)"),
        (low_rank((100_000, 1), (1, 100_000)), {}, "found (100000, 100000)"),
        (low_rank((7, 2), (3, 2, 128)), {}, "no low-rank product"),
        (low_rank((128,), (128,)), {}, "no low-rank product"),
        (
            low_rank((128, 2), (2, 128), m=mx.ones((3,))),
            {"kind": "dora"},
            "q_proj.m: (3,) is no length a row of 128",
        ),
        (
            {f"{QUERY}.weight": mx.ones((128, 128), mx.int32)},
            {"kind": "full"},
            "q_proj.weight of mlx.core.int32",
        ),
        (
            {f"{QUERY}.weight": mx.full((128, 128), math.inf)},
            {"kind": "full"},
            "q_proj.weight holds NaN or infinity",
        ),
    ],
)
def test_an_adapter_is_refused_by_load_and_convert(folder, tmp_path, tensors, settings, words):
    change_to = adapter(tmp_path / "adapter", tensors, **settings)
    for call in (
        lambda: zoo.load(folder, adapter=change_to),
        lambda: convert(folder, tmp_path / "new", adapter=change_to),
    ):
        with pytest.raises(ZooError) as caught:
            call()
        assert words in str(caught.value) and not (tmp_path / "new").exists()


def test_a_change_that_overflows_is_told(folder, tmp_path):
    change_to = adapter(
        tmp_path / "adapter",
        low_rank((128, 2), (2, 128), lora_a=mx.full((128, 2), 1e30), lora_b=mx.full((2, 128), 1e30)),
    )
    with pytest.raises(ZooError, match=r"layers\.1\.mixer\.query\.weight comes to hold NaN or infinity"):
        zoo.load(folder, adapter=change_to)
