"""The tensors of a GGUF file are, to the last bit, the numbers that the gguf package unpacks them to."""

import tracemalloc

import gguf
import mlx.core as mx
import numpy as np
import pytest

import zoo
from tests.helpers import gguf_files, gguf_packers
from zoo import runtime
from zoo.checkpoint.gguf import tensors as gguf_tensors
from zoo.checkpoint.gguf.header import read_header
from zoo.checkpoint.gguf.tensors import fives
from zoo.checkpoint.open import open_model
from zoo.checkpoint.quantized_matrix import QuantizedMatrix
from zoo.errors import CheckpointError, SourceError
from zoo.host.registry import default_registry
from zoo.loading import load
from zoo.runtime import device

PACKED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "MXFP4"]
PLAIN = ["F32", "F16", "BF16"]
# Q6_K has groups of 16, the others tables of numbers or less than a whole bit.
UNPACKED = ["Q6_K", "TQ1_0", "TQ2_0"]


def matrices(seed=0):
    """Three stacked ones, (3, 5, 512), with rows of zeros, of one number and of one sign."""
    numbers = np.random.default_rng(seed).standard_normal((3, 5, 512)).astype(np.float32) * 0.3
    numbers[0, 0], numbers[0, 1], numbers[1, 0] = 0, 0.7, np.abs(numbers[1, 0])
    return numbers


def entry_of(tmp_path, array, kind, raw=None):
    """A tensor in a file, found in its header."""
    writer = gguf.GGUFWriter(str(tmp_path / "tensor.gguf"), "llama")
    data = gguf_files.packed(array, kind) if raw is None else raw
    writer.add_tensor("tensor", data, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_header(tmp_path / "tensor.gguf").tensors["tensor"]


def unpacked(array, kind):
    """What the gguf package makes of the packed array."""
    return gguf.quants.dequantize(gguf_files.packed(array, kind), gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("chunk", [gguf_tensors.CHUNK, 1024])
@pytest.mark.parametrize("kind", [*PACKED, *PLAIN, *UNPACKED])
def test_every_number_is_the_gguf_packages(tmp_path, monkeypatch, kind, chunk):
    monkeypatch.setattr(gguf_tensors, "CHUNK", chunk)
    entry = entry_of(tmp_path, matrices(), kind)
    tensor, promised = gguf_tensors.read_tensor(entry, mx.float32), gguf_tensors.unread(entry, mx.float32)
    assert isinstance(tensor, QuantizedMatrix) == (kind in PACKED)
    assert type(promised) is type(tensor) and promised.shape == tensor.shape == (3, 5, 512)
    assert promised.nbytes == tensor.nbytes
    numbers = tensor.numbers(mx.float32) if isinstance(tensor, QuantizedMatrix) else tensor
    np.testing.assert_array_equal(np.array(numbers), unpacked(matrices(), kind))


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "F16", "Q6_K"])
def test_a_row_by_itself_is_unpacked(tmp_path, kind):
    row = matrices()[1, 1]
    tensor = gguf_tensors.read_tensor(entry_of(tmp_path, row, kind), mx.float32)
    assert isinstance(tensor, mx.array)
    np.testing.assert_array_equal(np.array(tensor), unpacked(row, kind))


@pytest.mark.parametrize("kind", ["IQ4_XS", "IQ2_XXS", "IQ3_S", "Q2_K", "Q3_K"])
def test_kinds_that_the_package_alone_unpacks(tmp_path, kind):
    wanted = gguf.GGMLQuantizationType[kind]
    blocks = np.random.default_rng(0).integers(0, 120, (4, 2 * gguf.GGML_QUANT_SIZES[wanted][1]), np.uint8)
    tensor = gguf_tensors.read_tensor(entry_of(tmp_path, None, kind, raw=blocks), mx.float32)
    np.testing.assert_array_equal(np.array(tensor), gguf.quants.dequantize(blocks, wanted))


@pytest.mark.parametrize("kind", ["Q8_K", "I32"])
def test_a_kind_that_nothing_unpacks_is_refused_by_name(tmp_path, kind):
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    raw = np.zeros((4, size), np.uint8) if kind == "Q8_K" else np.zeros((4, 4), np.int32)
    entry = entry_of(tmp_path, None, kind, raw=raw)
    with pytest.raises(CheckpointError, match=f"tensor tensor is of type {kind}"):
        gguf_tensors.check_kinds([entry])


def test_five_bits_are_packed_as_mlx_packs_them():
    numbers = np.random.default_rng(0).integers(0, 32, (6, 64), np.uint8)
    scales, biases = mx.ones((6, 2)), mx.zeros((6, 2))
    found = mx.dequantize(mx.array(fives(numbers)), scales, biases, group_size=32, bits=5)
    np.testing.assert_array_equal(np.array(found), numbers)


@pytest.mark.parametrize(("kind", "error"), [("Q4_K", 0.06), ("Q5_K", 0.03), ("Q6_K", 0.02)])
def test_the_packers_of_these_tests_are_near_what_they_pack(kind, error):
    array = matrices()[1]
    found = gguf.quants.dequantize(gguf_packers.pack(array, kind), gguf.GGMLQuantizationType[kind])
    assert np.abs(found - array).max() < error * np.abs(array).max() * 2


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(device, "on_gpu", lambda: True)
    monkeypatch.setattr(runtime, "dequantized_dtype", device.dequantized_dtype)


def own_dtype(tmp_path, *kinds, array=None):
    folders = [tmp_path / kind for kind in kinds]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    array = matrices() if array is None else array
    return gguf_tensors.own_dtype(entry_of(folder, array, folder.name) for folder in folders)


def test_the_smallest_float_that_holds_all_is_the_files_own_on_a_cpu(tmp_path, cpu):
    def own(*kinds):
        return own_dtype(tmp_path, *kinds)

    assert own("Q4_0", "Q8_0", "F16") == mx.float16
    assert own("BF16") == mx.bfloat16
    assert own("BF16", "Q8_0") == own("Q4_K") == own("Q4_0", "Q6_K") == own("F32") == mx.float32


@pytest.mark.parametrize("kinds", ["Q4_0", "Q8_0", "Q4_K Q6_K", "Q4_K", "Q8_0 F32", "Q4_0 F16", "MXFP4 BF16"])
def test_a_gpu_computes_in_bfloat16_with_a_quantized_file(tmp_path, gpu, kinds):
    assert own_dtype(tmp_path, *kinds.split()) == mx.bfloat16


def test_a_gpu_computes_in_float16_only_where_a_file_of_float16_needs_it(tmp_path, gpu):
    published = np.array(mx.array(matrices()).astype(mx.bfloat16).astype(mx.float32))
    assert own_dtype(tmp_path, "F16") == own_dtype(tmp_path, "F16", "F32") == mx.float16
    assert own_dtype(tmp_path, "F16", array=published) == mx.bfloat16
    assert own_dtype(tmp_path, "F32") == mx.float32


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_float16_holds_these_as_they_are(tmp_path, kind):
    entry = entry_of(tmp_path, matrices(), kind)
    narrow = gguf_tensors.read_tensor(entry, mx.float16)
    np.testing.assert_array_equal(
        np.array(narrow.astype(mx.float32).numbers(mx.float32)), unpacked(matrices(), kind)
    )


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A folder of a LLaMA whose rows are whole blocks of 256."""
    numbers = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, vocab_size=64)
    return gguf_files.random_folder(tmp_path_factory.mktemp("wide") / "model", "llama", **numbers)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_a_model_of_k_blocks_is_the_model_of_their_numbers(tmp_path, wide, kind, recwarn):
    path = gguf_files.write(tmp_path / "model.gguf", wide, kind)
    loaded = load(path)
    told = [str(warning.message) for warning in recwarn]
    assert told == (
        [f"tensors that no quantization of MLX holds exactly, dequantized to float32: 15 of {kind}"]
        if kind == "Q6_K"
        else []
    )
    assert gguf_files.difference(loaded, gguf_files.dequantized(path)) <= 1e-5


def test_files_that_mix_kinds_load_each_as_it_is(tmp_path, wide):
    kinds = {"blk.0.ffn_down.weight": "Q6_K", "token_embd.weight": "F16", "blk.1.attn_v.weight": "Q8_0"}
    with pytest.warns(UserWarning, match="1 of Q6_K"):
        model = zoo.load(gguf_files.write(tmp_path / "model.gguf", wide, "Q4_K", kinds)).model
    assert type(model.embedding.tokens).__name__ == "Embedding"
    assert model.layers[1].mixer.value.bits == 8 and model.layers[0].mixer.value.bits == 4
    assert type(model.layers[0].feedforward.down).__name__ == "Linear"


@pytest.mark.parametrize("kind", ["F16", "Q4_0", "Q5_K", "Q6_K"])
def test_little_more_is_held_than_what_is_kept(tmp_path, kind, monkeypatch):
    """Pieces are taken apart into their places."""
    monkeypatch.setattr(gguf_tensors, "CHUNK", 2**13)
    array = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    entry = entry_of(tmp_path, array, kind)
    promised = gguf_tensors.unread(entry, mx.float32).nbytes
    tracemalloc.start()
    try:
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        kept = gguf_tensors.read_tensor(entry, mx.float32)
        assert kept.nbytes == promised
        assert mx.get_peak_memory() - before <= promised + 2**14
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_some_tensors_are_read_without_the_others(tmp_path):
    path = gguf_files.write(
        tmp_path / "model.gguf", default_registry().architecture("llama").preset("pocket").folder
    )
    checkpoint = open_model(path).checkpoint
    assert checkpoint.read(mx.float32, ["output_norm.weight"]).arrays.keys() == {"output_norm.weight"}
    assert checkpoint.held_bytes(mx.float16) == 2 * 1_049_728


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q6_K"])
def test_bfloat16_is_rounded_as_mlx_rounds(tmp_path, kind):
    array = matrices()
    array[2, 2, :6] = [np.inf, -np.inf, 3e38, 1e-40, 0.0, -0.0] if kind == "F32" else 0.0
    entry = entry_of(tmp_path, array, kind)
    found, wanted = gguf_tensors.read_tensor(entry, mx.bfloat16), gguf_tensors.read_tensor(entry, mx.float32)
    for one, other in zip(parts(found), parts(wanted), strict=True):
        cast = other.astype(one.dtype)
        assert mx.array_equal(one, cast) and one.dtype in (mx.bfloat16, mx.uint32)


def parts(tensor):
    return tensor.parts().values() if isinstance(tensor, QuantizedMatrix) else [tensor]


def test_a_model_that_does_not_fit_is_refused_unread(tmp_path, monkeypatch):
    path = gguf_files.write(
        tmp_path / "model.gguf", default_registry().architecture("llama").preset("pocket").folder
    )
    monkeypatch.setattr("zoo.runtime.usable_memory", lambda: 10**6)
    monkeypatch.setattr(gguf_tensors, "read_tensor", None)
    with pytest.raises(SourceError, match="does not fit"):
        load(path)
