"""A GGUF header from a stranger: what it says is checked, and the answer is a right reading or one line."""

import struct
import tracemalloc

import gguf
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zoo
from tests.helpers import gguf_files
from zoo.checkpoint.gguf.gguf_checkpoint import GGUFCheckpoint
from zoo.checkpoint.gguf.header import read_header
from zoo.errors import CheckpointError, ZooError
from zoo.host.registry import default_registry

HUGE = 2**63


def u32(*values):
    return struct.pack(f"<{len(values)}I", *values)


def u64(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return u64(len(data)) + data


ARCHITECTURE = text("general.architecture") + u32(8) + text("llama")


def tensor(name="a", shape=(32,), kind=0, offset=0):
    return text(name) + u32(len(shape)) + u64(*shape) + u32(kind) + u64(offset)


def file(keys=(ARCHITECTURE,), tensors=(), data=256, version=3, counts=None, magic=b"GGUF"):
    """The bytes of a file: header, padding to the next 32, then `data` bytes."""
    counts = counts or (len(tensors), len(keys))
    header = magic + u32(version) + u64(*counts) + b"".join([*keys, *tensors])
    return header + bytes(-len(header) % 32 + data)


def key(name, kind, value):
    return text(name) + u32(kind) + value


def array(kind, count, values=b""):
    return u32(kind) + u64(count) + values


REFUSED = {
    "empty": (b"", "goes on past its end"),
    "text": (b"not a model at all, only text", "not a GGUF file"),
    "magic alone": (b"GGUF", "goes on past its end"),
    "version 1": (file(version=1), "version 1; 2 and 3 can be read"),
    "version 4": (file(version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "2^63 tensors": (file(counts=(HUGE, 1)), f"{HUGE} tensors"),
    "2^63 keys": (file(counts=(0, HUGE)), f"{HUGE} keys"),
    "a million keys that are not there": (file(counts=(0, 10**6)), "the name of a key has 0 bytes"),
    "a text of 2^63 bytes": (file([key("a", 8, u64(HUGE))]), "past its end"),
    "a key of 2^63 bytes": (file([u64(HUGE)]), "the name of a key"),
    "a key that is not UTF-8": (file([key(b"\xff\xfe", 4, u32(1))]), "utf-8"),
    "a key of two lines": (file([key("a\nb", 4, u32(1))]), r"'a\nb'"),
    "a text that is not UTF-8": (file([key("a", 8, text(b"\xc3"))]), "utf-8"),
    "a key twice": (file([ARCHITECTURE, ARCHITECTURE]), "general.architecture stands there twice"),
    "an unknown kind": (file([key("a", 13, u32(1))]), "a is of the unknown kind 13"),
    "an array of arrays": (file([key("a", 9, array(9, 1, array(4, 1, u32(1))))]), "array of arrays"),
    "an array of 2^63 numbers": (file([key("a", 9, array(4, HUGE))]), f"{HUGE} values in a"),
    "an array of a million texts": (file([key("a", 9, array(8, 10**6))]), "past its end"),
    "an array of an unknown kind": (file([key("a", 9, array(99, 1))]), "unknown kind 99"),
    "alignment 0": (file([key("general.alignment", 4, u32(0))]), "general.alignment 0"),
    "alignment 33": (file([key("general.alignment", 4, u32(33))]), "general.alignment 33"),
    "alignment in words": (file([key("general.alignment", 8, text("32"))]), "general.alignment '32'"),
    "an unknown type": (file(tensors=[tensor(kind=77)]), "tensor a is of the unknown type 77"),
    "a type that was taken away": (file(tensors=[tensor(kind=4)]), "unknown type 4"),
    "a tensor twice": (file(tensors=[tensor(), tensor(offset=128)]), "tensor a stands there twice"),
    "a tensor without axes": (file(tensors=[tensor(shape=())]), "tensor a has 0 axes"),
    "a tensor of 2^32 axes": (file(tensors=[text("a") + u32(2**32 - 1)]), "has 4294967295 axes"),
    "a side of nothing": (file(tensors=[tensor(shape=(32, 0))]), "the shape (0, 32)"),
    "sides whose product overflows": (file(tensors=[tensor(shape=(2**32, 2**32))]), "has the shape"),
    "sides that are long": (file(tensors=[tensor(shape=(2**40,))]), "does not lie within the file"),
    "no whole blocks": (
        file(tensors=[tensor(shape=(48,), kind=2)]),
        "rows of 48 are no whole blocks of Q4_0",
    ),
    "an offset past the end": (file(tensors=[tensor(offset=2**62)]), "does not lie within the file"),
    "an offset out of line": (file(tensors=[tensor(offset=16)]), "does not lie within the file"),
    "tensors that overlap": (file(tensors=[tensor("a"), tensor("b", offset=64)]), "tensor b overlaps"),
    "a tensor without a name": (file(tensors=[tensor("")]), "the name of a tensor"),
    "a tensor with a long name": (file(tensors=[tensor("a" * 300)]), "the name of a tensor has 300 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_header_that_lies_is_one_line(tmp_path, case):
    data, words = REFUSED[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 5 * 2**20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert words in message


def test_a_file_without_an_architecture_or_of_an_unknown_one(tmp_path):
    path = tmp_path / "model.gguf"
    for keys, words in (
        ((), "general.architecture is missing"),
        ([key("general.architecture", 8, text("flan"))], "'flan'"),
    ):
        path.write_bytes(file(keys))
        with pytest.raises(ZooError, match=words):
            zoo.load(path)


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    whole = gguf_files.write(tmp_path / "whole.gguf", small_folder(tmp_path)).read_bytes()
    path = tmp_path / "model.gguf"
    for end in [*range(0, 400, 7), *range(400, len(whole), len(whole) // 60), len(whole) - 33]:
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match="model"):
            GGUFCheckpoint(path, registry=default_registry())


def small_folder(tmp_path):
    """A LLaMA of a few kilobytes, with a tokenizer."""
    numbers = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, vocab_size=300)
    folder = gguf_files.random_folder(tmp_path / "small", "llama", **numbers)
    gguf_files.small_tokenizer(folder, 300)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small")
    return gguf_files.write(
        path / "model.gguf", small_folder(path), "Q4_0"
    ).read_bytes(), path / "mutant.gguf"


def header_size(data):
    return data.rindex(b"output_norm.weight")


def opened(path):
    """Everything but the model itself: header, config, tokenizer, tensors."""
    file = GGUFCheckpoint(path, registry=default_registry())
    file.tokenizer()
    mx.eval([array for tensor in file.read(None).arrays.values() for array in parts(tensor)])


def parts(tensor):
    return tensor.parts().values() if hasattr(tensor, "parts") else [tensor]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(small, data):
    """Bytes of the header changed, put in or taken out: a `ZooError`, or a file as good as another."""
    whole, path = small
    mutant = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) if data.draw(st.booleans()) else header_size(whole)))
        new = data.draw(
            st.sampled_from([b"\0", b"\xff", b"\x01", b"\x7f", u64(HUGE), u32(2**32 - 1), u32(9)])
        )
        kept = data.draw(st.sampled_from([0, len(new)]))
        mutant[place : place + kept] = new
    path.write_bytes(mutant)
    try:
        opened(path)
    except ZooError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_loads_as_a_model_or_is_refused(small):
    whole, path = small
    random = np.random.default_rng(0)
    loaded = 0
    for _ in range(40):
        mutant = bytearray(whole)
        mutant[random.integers(0, len(whole))] ^= 1 << random.integers(0, 8)
        path.write_bytes(mutant)
        try:
            model = zoo.load(path).model
            assert model(mx.array([[1, 2, 3]])).shape[:2] == (1, 3)
            loaded += 1
        except ZooError as error:
            assert "\n" not in str(error)
    assert 0 < loaded < 40


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_package_reads_the_same(tmp_path, name):
    path = gguf_files.write(
        tmp_path / "model.gguf", default_registry().architecture(name).preset("pocket").folder, "Q5_0"
    )
    header, reader = read_header(path), gguf.GGUFReader(path)
    wanted = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    found = {
        key: list(value) if isinstance(value, tuple) else value for key, value in header.metadata.items()
    }
    assert found == wanted
    for one in reader.tensors:
        entry = header.tensors[one.name]
        assert (entry.kind, entry.offset, entry.size) == (one.tensor_type.name, one.data_offset, one.n_bytes)
        assert list(entry.shape) == one.shape.tolist()[::-1]
    assert len(reader.tensors) == len(header.tensors)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({b"embedding_length": b"embedding_lengtj"}, "llama.embedding_length is missing"),
        ({b"blk.0.attn_q.weight": b"blk.0.attn_j.weight", b".context_length": b".context_lengtj"}, "attn_j"),
    ],
)
def test_a_file_that_is_refused_is_so_in_one_line(small, changes, words):
    """Notices of what else is odd in it are not given."""
    whole, path = small
    for old, new in changes.items():
        assert old in whole
        whole = whole.replace(old, new)
    path.write_bytes(whole)
    with pytest.raises(ZooError, match=words):
        zoo.load(path)


def test_a_notice_is_given_when_a_file_has_loaded(small):
    whole, path = small
    path.write_bytes(whole.replace(b".context_length", b".context_lengtj"))
    with pytest.warns(UserWarning, match="metadata unknown to llama, ignored: context_lengtj"):
        zoo.load(path)


def test_a_part_that_is_a_link_out_of_its_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    gguf_files.write(folder / "part.gguf", small_folder(tmp_path), "Q4_0", most=7)
    first, second, *_ = sorted(folder.iterdir())
    elsewhere = second.rename(tmp_path / "elsewhere.gguf")
    second.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=r"00002-of-.*is a link out of the folder"):
        zoo.load(first)
    # A hub's snapshot is made of links into its own repository.
    repository = tmp_path / "models--a--b"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    second.unlink()
    elsewhere.rename(second)
    for number, part in enumerate(sorted(folder.iterdir())):
        blob = part.rename(repository / "blobs" / f"{number:064x}")
        (snapshot / part.name).symlink_to(blob)
    assert zoo.load(snapshot / first.name).architecture.name == "llama"
