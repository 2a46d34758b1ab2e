"""Types that no quantization of MLX holds: packed anew when asked, else unpacked to what the device prefers; and converting."""

import re

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

import zoo
from tests.helpers import gguf_files
from zoo.checkpoint.convert import convert
from zoo.checkpoint.gguf import tensors as gguf_tensors
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.open import OpenOptions, open_model
from zoo.errors import CheckpointError, SourceError, ZooError
from zoo.loading import load

WIDE = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, vocab_size=64)
KINDS = {"blk.0.ffn_down.weight": "Q6_K", "blk.2.attn_v.weight": "Q6_K", "token_embd.weight": "Q6_K"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A file of Q4_K with three matrices of Q6_K, and the folder that it was made of."""
    path = tmp_path_factory.mktemp("mixed")
    folder = gguf_files.random_folder(path / "folder", "llama", **WIDE)
    return gguf_files.write(path / "model.gguf", folder, "Q4_K", KINDS), folder


def told(recwarn):
    return [str(warning.message) for warning in recwarn]


@pytest.mark.parametrize(("bits", "least", "most"), [(4, 0.03, 0.2), (6, 0.008, 0.05), (8, 0.001, 0.01)])
def test_they_are_packed_in_as_many_bits_as_asked_for(mixed, bits, least, most, recwarn):
    path, _ = mixed
    model = load(path, repack=bits).model
    (line,) = told(recwarn)
    error = float(
        re.fullmatch(rf"packed anew in {bits} bits: 3 of Q6_K; relative error \(RMS\) (.*)", line)[1]
    )
    assert least < error < most
    assert model.layers[0].feedforward.down.bits == model.embedding.tokens.bits == bits
    assert model.layers[1].feedforward.down.bits == 4
    plain = load(path).model
    wanted = plain.layers[0].feedforward.down.weight
    down = model.layers[0].feedforward.down
    found = mx.dequantize(down.weight, down.scales, down.biases, group_size=32, bits=bits)
    assert 0 < mx.abs(found - wanted).max() / mx.abs(wanted).max() < 2 * most
    # What is exact stays so.
    assert mx.array_equal(model.layers[1].mixer.query.weight, plain.layers[1].mixer.query.weight)


def test_the_error_is_that_of_all_that_was_packed_anew(mixed, recwarn):
    path, _ = mixed
    opened = open_model(path, OpenOptions(dtype="float32", repack=4))
    opened.read()
    squares = np.zeros(2)
    for name, kind in KINDS.items():
        assert opened.checkpoint.header.tensors[name].kind == kind
        wanted = gguf_tensors.read_tensor(opened.checkpoint.header.tensors[name], mx.float32)
        found = opened.checkpoint.read(mx.float32, [name]).arrays[name].numbers()
        squares += [mx.square(found - wanted).sum().item(), mx.square(wanted).sum().item()]
    error = float(told(recwarn)[0].rpartition(" ")[2])
    assert error == pytest.approx((squares[0] / squares[1]) ** 0.5, rel=0.05)


def test_what_is_promised_is_what_is_read(mixed):
    path, _ = mixed
    for bits in (None, 4, 6, 8):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            checkpoint = open_model(path, OpenOptions(repack=bits)).checkpoint
            held, arrays = checkpoint.held_bytes(dtype), checkpoint.read(dtype).arrays
            assert held == sum(array.nbytes for array in arrays.values())
            for name, promised in checkpoint.tensors(dtype).arrays.items():
                assert promised.shape == arrays[name].shape and promised.dtype == arrays[name].dtype


def test_only_a_gguf_file_is_packed_anew(mixed):
    path, folder = mixed
    with pytest.raises(SourceError, match="`repack` is of GGUF files; `zoo convert --quantize` packs others"):
        zoo.load(folder, repack=4)
    with pytest.raises(CheckpointError, match="`repack` 5 is not one of 4, 6, 8"):
        zoo.load(path, repack=5)


@pytest.mark.parametrize(
    "how", [{}, {"repack": 6}, {"quantize": "4"}, {"layout": "hf"}, {"quantize": "none"}]
)
def test_a_converted_file_is_the_file(mixed, tmp_path, how, recwarn):
    path, _ = mixed
    done = convert(path, tmp_path / "out", **how)
    lines = told(recwarn)
    assert len(lines) == len(set(lines)) and any("Q6_K" in line for line in lines)
    folder = zoo.load(tmp_path / "out")
    tokens = mx.array([[1, 5, 9, 3]])
    if "quantize" not in how:
        wanted = load(path, repack=how.get("repack")).model(tokens)
        found = folder.model(tokens)
        assert mx.abs(found - wanted).max() <= 1e-5 * (wanted.max() - wanted.min())
    assert done.parameters == folder.recipe.parameters(folder.recipe.dim)
    assert any("scales" in name for name, _ in tree_flatten(folder.model.parameters())) == (
        how.get("layout") != "hf" and how.get("quantize") != "none"
    )


def test_shards_that_cut_a_layer_hold_all_of_it(mixed, tmp_path):
    path, _ = mixed
    convert(path, tmp_path / "one", repack=8)
    with pytest.warns(UserWarning, match="8 bits: 3 of Q6_K"):
        convert(path, tmp_path / "many", repack=8, shard=200_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 5
    one, many = (dict(tree_flatten(zoo.load(tmp_path / name).model.parameters())) for name in ("one", "many"))
    assert one.keys() == many.keys() and all(mx.array_equal(one[name], many[name]) for name in one)


def test_converting_reads_a_layer_at_a_time(mixed, tmp_path, monkeypatch):
    path, _ = mixed
    asked = []
    read = GGUFCheckpoint.read

    def noted(self, dtype, names=None):
        asked.append(names)
        return read(self, dtype, names)

    monkeypatch.setattr(GGUFCheckpoint, "read", noted)
    convert(path, tmp_path / "out", quantize="4")
    layers = [{name.split(".")[1] for name in names if name.startswith("blk.")} for names in asked]
    assert [*map(len, layers)] == [0, 1, 1, 1] and set.union(*layers) == {"0", "1", "2"}


def test_a_file_that_ends_early_is_told_while_it_is_read(mixed, tmp_path):
    path, _ = mixed
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    opened = open_model(copy)
    with copy.open("r+b") as file:
        file.truncate(copy.stat().st_size // 2)
    with pytest.raises(ZooError, match=r"copy\.gguf: ends within tensor"):
        opened.read()


def test_zoo_run_takes_it(command, mixed):
    path, _ = mixed
    done = command("run", path, "--repack", "6", "--max-tokens", "1", "--raw", "hi")
    assert "packed anew in 6 bits: 3 of Q6_K" in done.stderr
    assert command("run", path, "--repack", "5", "hi").returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "folder"])
def test_memory_while_converting_is_a_layers(tmp_path, source):
    """Not that of the whole model unpacked."""
    numbers = dict(hidden_size=256, intermediate_size=1024, num_hidden_layers=12, vocab_size=64)
    folder = gguf_files.random_folder(tmp_path / "folder", "llama", **numbers)
    path = gguf_files.write(tmp_path / "model.gguf", folder, "Q6_K")
    whole = open_model(path).checkpoint.held_bytes(mx.float32)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    convert(path if source == "file" else folder, tmp_path / "out", quantize="4", shard=10**6)
    assert mx.get_peak_memory() - before < whole / 4
