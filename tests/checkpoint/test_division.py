"""A rank holds its rows and columns of each tensor, whatever the weight rules make of the tensors."""

import os
from dataclasses import replace

import mlx.core as mx
import pytest

from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert, save
from zoo.checkpoint.division import divided_parameters, packed_group
from zoo.checkpoint.folder import FolderCheckpoint
from zoo.checkpoint.open import OpenOptions, open_model
from zoo.checkpoint.quantized_matrix import QuantizedMatrix, read
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
@pytest.mark.parametrize(
    ("architecture", "quantize"),
    [*((name, None) for name in FAMILIES.values()), ("llama", "4"), ("llama", "mxfp4")],
    ids=[*FAMILIES, "packed", "packed floats"],
)
def test_a_rank_has_its_parts_of_all_parameters(folder_of, architecture, quantize, rank):
    opened, expected = divide(folder_of(architecture, quantize), rank)
    opened.read()
    check_equal(opened.parameters, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_memory_peaks_near_the_share(tmp_path, kind):
    sizes = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=12, vocab_size=1_000)
    source = gguf_files.random_folder(tmp_path / "folder", "llama", **sizes)
    if kind == "gguf":
        source = gguf_files.write(tmp_path / "model.gguf", source, "Q8_0")
    opened = open_model(source, OpenOptions(dtype="float32"))
    layer = sum(t.nbytes for path, t in opened.parameters.items() if path.startswith("layers.0."))
    division = division_of(opened, Share(1, 2))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    opened.divide(division, 1)
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert 0.99 * share < mx.get_peak_memory() - before <= share + 2 * layer


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_progress_counts_the_share(folder_of, gguf_file, kind):
    seen = []
    source = gguf_file if kind == "gguf" else folder_of("llama")
    opened, _ = divide(source, 0, report=lambda done, total: seen.append((done, total)))
    share = sum(tensor.nbytes for tensor in opened.parameters.values())
    opened.read()
    assert seen == sorted(seen) and seen[-1] == (share, share)


def test_a_file_that_becomes_shorter_is_one_clear_line(folder_of):
    folder = folder_of("llama")
    opened, _ = divide(folder, 1)
    os.truncate(folder / "model.safetensors", 2000)
    with pytest.raises(CheckpointError, match=r"plain: \S+ cannot be read"):
        opened.read()


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory):
    """A GGUF file of several kinds, whose rotary rows are in llama.cpp's order, and where ranks cut through a block of 256."""
    path = tmp_path_factory.mktemp("gguf")
    sizes = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=2, vocab_size=64)
    kinds = {"blk.0.ffn_down.weight": "Q6_K", "token_embd.weight": "Q8_0", "blk.1.attn_q.weight": "F16"}
    folder = gguf_files.random_folder(path / "folder", "llama", **sizes)
    return gguf_files.write(path / "model.gguf", folder, "Q4_K", kinds)


@pytest.mark.filterwarnings(
    "ignore:tensors that no quantization:UserWarning", "ignore:packed anew:UserWarning"
)
@pytest.mark.parametrize("repack", [None, 8])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_gguf_file_is_divided_too(gguf_file, rank, repack):
    opened, expected = divide(gguf_file, rank, repack=repack)
    opened.read()
    assert isinstance(opened.parameters["layers.0.feedforward.down.weight"], QuantizedMatrix) == bool(repack)
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
