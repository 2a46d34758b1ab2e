"""A rank reads its rows and columns of each tensor, and no more, whatever the weight rules make of the tensors."""

import os
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from tests.helpers import gguf_files
from zoo.checkpoint import stored_tensor
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.division import divided_parameters, packed_group
from zoo.checkpoint.folder import FolderCheckpoint
from zoo.checkpoint.open import OpenOptions, open_model
from zoo.checkpoint.quantized_matrix import QuantizedMatrix, join, read
from zoo.checkpoint.stored_tensor import Span, StoredTensor, whole
from zoo.errors import CheckpointError
from zoo.recipe.division import Share
from zoo.recipe.tensor_parallel import divided
from zoo.testing import subject
from zoo.weights import Rename

FAMILIES = {
    "rows and columns": "llama",
    "stored (in, out), three projections in one": "gpt2",
    "experts one by one": "mixtral",
}


@pytest.fixture
def bytes_read(monkeypatch):
    """The bytes of each call that reads a range of a file; no gap between ranges is read."""
    sizes = []

    def pread(file, size, offset, real=os.pread):
        sizes.append(size)
        return real(file, size, offset)

    monkeypatch.setattr(stored_tensor.os, "pread", pread)
    monkeypatch.setattr(stored_tensor, "GAP", 0)
    return sizes


@pytest.fixture
def folder_of(tmp_path):
    def made(architecture, quantize=None):
        of = subject(architecture)
        plain = tmp_path / "plain"
        save(plain, of.model, of.architecture, of.recipe, of.numbers)
        if quantize is None:
            return plain
        convert(plain, tmp_path / "packed", quantize=quantize, group_size=32)
        return tmp_path / "packed"

    return made


def division_of(opened, share):
    """The division of a checkpoint, in whole groups of its packed matrices."""
    recipe = opened.recipe
    group = packed_group(opened.parameters, divided(recipe, recipe.dim, share))
    return divided(recipe, recipe.dim, replace(share, group=group))


def divide(source, rank, ranks=2, repack=None, report=None):
    """A checkpoint opened and divided, and the parts of the whole parameters that the rank is to have."""
    options = OpenOptions(dtype="float32", repack=repack, report=report)
    opened, other = (open_model(source, options) for _ in range(2))
    division = division_of(opened, Share(rank, ranks))
    opened.divide(division, rank)
    other.read()
    whole_parameters = {path: read(tensor) for path, tensor in other.parameters.items()}
    return opened, divided_parameters(whole_parameters, division, rank)


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for path in expected:
        one, other = found[path], expected[path]
        if isinstance(other, QuantizedMatrix):
            assert one.quantization == other.quantization, path
            check_equal(one.parts(), other.parts())
        else:
            assert one.shape == other.shape and mx.array_equal(one, other), path


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("architecture", FAMILIES.values(), ids=FAMILIES)
def test_a_rank_reads_its_share_and_no_more(folder_of, bytes_read, architecture, rank):
    opened, expected = divide(folder_of(architecture), rank)
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert 0.5 * share < sum(bytes_read) <= share
    check_equal(opened.parameters, expected)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("quantize", ["4", "mxfp4"])
def test_packed_matrices_are_read_by_ranges_too(folder_of, bytes_read, quantize, rank):
    opened, expected = divide(folder_of("llama", quantize), rank)
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert 0.5 * share < sum(bytes_read) <= share
    check_equal(opened.parameters, expected)


def test_ranges_that_lie_close_are_read_with_the_gap(folder_of, bytes_read, monkeypatch):
    opened, expected = divide(folder_of("llama"), 1)
    opened.read()
    apart = len(bytes_read)
    bytes_read.clear()
    monkeypatch.setattr(stored_tensor, "GAP", 2**20)
    opened, expected = divide(folder_of("llama"), 1)
    opened.read()
    assert 0 < len(bytes_read) < apart / 4
    check_equal(opened.parameters, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_memory_peaks_near_the_share(tmp_path, kind):
    sizes = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=4, vocab_size=16_000)
    source = gguf_files.random_folder(tmp_path / "folder", "llama", **sizes)
    if kind == "gguf":
        source = gguf_files.write(tmp_path / "model.gguf", source, "Q8_0")
    opened = open_model(source, OpenOptions(dtype="float32"))
    division = division_of(opened, Share(1, 2))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    opened.divide(division, 1)
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert 0.99 * share < mx.get_peak_memory() - before <= 1.1 * share


def test_progress_counts_the_share(folder_of):
    seen = []
    opened, _ = divide(folder_of("llama"), 0, report=lambda done, total: seen.append((done, total)))
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert seen == sorted(seen) and seen[-1] == (share, share)


def test_a_file_that_becomes_shorter_is_one_clear_line(folder_of):
    folder = folder_of("llama")
    opened, _ = divide(folder, 1)
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: ends within tensor \S+$"):
        opened.read()


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    """A GGUF file of several kinds, whose rotary rows are in llama.cpp's order, and where ranks cut through a block of 256."""
    path = tmp_path_factory.mktemp("gguf")
    sizes = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=2, vocab_size=64)
    kinds = {"blk.0.ffn_down.weight": "Q6_K", "token_embd.weight": "Q8_0", "blk.1.attn_q.weight": "F16"}
    folder = gguf_files.random_folder(path / "folder", "llama", **sizes)
    return gguf_files.write(path / "model.gguf", folder, "Q4_K", kinds)


@pytest.mark.filterwarnings("ignore:tensors that no quantization:UserWarning")
@pytest.mark.parametrize("rank", [0, 1])
def test_gguf_files_are_read_by_ranges(gguf_file, bytes_read, rank):
    opened, expected = divide(gguf_file, rank)
    bytes_read.clear()
    opened.read()
    assert 0 < sum(bytes_read) < 0.6 * gguf_file.stat().st_size
    check_equal(opened.parameters, expected)


@pytest.mark.filterwarnings("ignore:packed anew:UserWarning")
@pytest.mark.parametrize("rank", [0, 1])
def test_gguf_files_are_packed_anew_by_ranges(gguf_file, rank):
    opened, expected = divide(gguf_file, rank, repack=8)
    opened.read()
    assert isinstance(opened.parameters["layers.0.feedforward.down.weight"], QuantizedMatrix)
    check_equal(opened.parameters, expected)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_rule_that_computes_is_given_whole_tensors(folder_of, monkeypatch, lazy):
    folder = folder_of("llama")
    expected = divide(folder, 1)[1]
    monkeypatch.setattr(Rename, "loaded", lambda self, tensor: mx.multiply(tensor, 2))
    monkeypatch.setattr(FolderCheckpoint, "lazy", lazy)
    opened, _ = divide(folder, 1)
    opened.read()
    check_equal(opened.parameters, {path: 2 * tensor for path, tensor in expected.items()})


OPERATIONS = {
    "rows": lambda t: t[3:11],
    "columns": lambda t: t[:, 4:8],
    "columns of a part": lambda t: t[:, 4:8][..., 1:3],
    "transposed": lambda t: t.T[2:7, 1:9],
    "rows in pairs": lambda t: t.reshape(2, 6, 2, 10).swapaxes(1, 2).reshape(24, 10)[12:],
    "groups of rows": lambda t: t.reshape(4, 6, 10)[:, 2:4].reshape(8, 10)[3:],
    "a new axis": lambda t: t[None][:, 5:9, 2:],
    "every second row": lambda t: t[1::2, :5],
    "joined": lambda t: join([t[4:8][None], t[12:16][None]], 0)[:, 1:3],
    "joined rows": lambda t: join([t[4:8], t[:2]], 0),
    "joined columns": lambda t: join([t[:, :3], t[:, 5:]], 1),
    "stacked and transposed": lambda t: join([t[:5][None], t[9:14][None]], 0).swapaxes(-1, -2)[:, 3:5, 1:],
    "one row": lambda t: t[7],
    "one column": lambda t: t[:, 7],
    "columns divided": lambda t: t.reshape(24, 2, 5)[:, 1],
}


@pytest.mark.parametrize("gap", [0, 512])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.uint8])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_it_is_rearranged_as_an_array_is(tmp_path, monkeypatch, operation, dtype, gap):
    monkeypatch.setattr(stored_tensor, "GAP", gap)
    monkeypatch.setattr(stored_tensor, "PIECE", 100)  # several pieces
    array = mx.arange(240).reshape(24, 10).astype(dtype)
    data = np.array(array.view(mx.uint8))
    (tmp_path / "file").write_bytes(b"before" + data.tobytes() + b"after")
    span = Span(tmp_path / "file", "a", 6, 10 * dtype.size)
    found, expected = operation(whole(span, (24, 10), dtype)), operation(array)
    assert tuple(found.shape) == tuple(expected.shape)
    found = read(found)
    assert found.dtype == dtype and mx.array_equal(found, expected)


def test_floats_are_cast_when_they_are_read(tmp_path):
    array = mx.arange(24).reshape(4, 6).astype(mx.float16)
    (tmp_path / "file").write_bytes(np.array(array).tobytes())
    tensor = whole(Span(tmp_path / "file", "a", 0, 12), (4, 6), mx.float16)
    assert isinstance(tensor[1:], StoredTensor) and tensor[1:].nbytes == 36
    assert mx.array_equal(read(tensor[1:].astype(mx.float32)), array[1:].astype(mx.float32))
