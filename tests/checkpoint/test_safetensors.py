"""Headers that lie are refused before MLX, or anything else, believes them."""

import json
import struct

import mlx.core as mx
import pytest

from zoo.checkpoint.safetensors import MOST_HEADER, open_tensors, read_header, weight_files
from zoo.errors import CheckpointError

GOOD = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def written(path, header, size=16, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * size)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def refused(path, *words):
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000
    for word in (path, *words):
        assert str(word) in message, f"{word!r} is not in {message!r}"


def test_a_good_header_is_read(path):
    tensors = {"a": GOOD, "b": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [16, 16]}}
    written(path, {"__metadata__": {"format": "pt"}, **tensors})
    assert read_header(path) == ({"a": "F32", "b": "BF16"}, {"format": "pt"})
    arrays = open_tensors(path.parent).arrays
    assert arrays["a"].shape == (2, 2) and arrays["b"].shape == (0, 3)


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [2]},
        {"shape": [2, -2]},
        {"shape": [-2, -2]},
        {"shape": [2.0, 2]},
        {"shape": [True, 4]},
        {"shape": ["2", 2]},
        {"shape": 4},
        {"shape": None},
        {"shape": [[2, 2]]},
        {"shape": [1] * 40 + [2, 2]},
        {"shape": [2**40, 0], "data_offsets": [0, 0]},
        {"shape": [2**32, 2**32]},
        {"shape": [10**400]},
        {"dtype": "F33"},
        {"dtype": 5},
        {"dtype": None},
        {"dtype": ["F32"]},
        {"data_offsets": [0, 15]},
        {"data_offsets": [0, 32]},
        {"data_offsets": [1, 17]},
        {"data_offsets": [16, 0]},
        {"data_offsets": [-16, 0]},
        {"data_offsets": [False, 16]},
        {"data_offsets": [0.0, 16.0]},
        {"data_offsets": [0, 10**30]},
        {"data_offsets": [0]},
        {"data_offsets": [0, 16, 32]},
        {"data_offsets": "016"},
        {"data_offsets": None},
    ],
    ids=json.dumps,
)
def test_an_entry_that_cannot_be(path, entry):
    refused(written(path, {"a": GOOD | entry}))


@pytest.mark.parametrize("entry", [None, 1, [], "a", {}])
def test_an_entry_that_is_none(path, entry):
    refused(written(path, {"a": entry}), "'a'")


@pytest.mark.parametrize(
    "header",
    [
        {"a": GOOD, "b": GOOD},
        {"a": GOOD, "b": GOOD | {"data_offsets": [8, 24]}},
        {"a": GOOD, "b": GOOD | {"data_offsets": [20, 36]}},
    ],
    ids=["the same place", "overlapping", "a gap"],
)
def test_tensors_lie_one_after_the_other(path, header):
    refused(written(path, header, 36))


def test_the_file_ends_where_the_tensors_do(path):
    refused(written(path, {"a": GOOD}, 17), "the tensors need 16 bytes")
    refused(written(path, {"a": GOOD}, 15))
    refused(written(path, {}, 4))


@pytest.mark.parametrize(
    "header",
    [
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "a": {"dtype": "I32", "shape": [4], '
        b'"data_offsets": [0, 16]}}',
        b'{"a": {"dtype": "F32", "dtype": "I32", "shape": [4], "data_offsets": [0, 16]}}',
        b'{"\xff": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
        rb'{"\ud800": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, NaN]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, ' + b"9" * 5000 + b"]}}",
        b'{"a": ' * 5000,
        b"[" * 100_000,
        b"null",
        b'"a"',
        b"",
        b'{"__metadata__": 3}',
        b'{"__metadata__": ["format"]}',
    ],
    ids=range(13),
)
def test_a_header_that_is_no_header(path, header):
    refused(written(path, header))


@pytest.mark.parametrize("length", [0, 1, 8, 2**32, 2**62, 2**64 - 1])
def test_a_length_that_lies(path, length):
    refused(written(path, {"a": GOOD}, length=length))


def test_a_header_larger_than_the_format_allows(path):
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MOST_HEADER + 1))
        file.truncate(MOST_HEADER + 100)
    refused(path, "header")


def test_more_than_a_million_tensors(path):
    refused(written(path, b"{" + b'"":{},' * 1_000_003 + b'"":{}}'), "1,000,000 tensors")


def test_every_dtype_of_a_header_is_loaded_or_refused(path):
    from zoo.checkpoint.safetensors import BITS

    for dtype, bits in BITS.items():
        written(path, {"a": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}, bits)
        try:
            mx.eval(open_tensors(path.parent).arrays["a"])
        except CheckpointError as error:
            assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    "index",
    [
        *([], {}, None, "a", {"weight_map": None}, {"weight_map": {}}, {"weight_map": ["a"]}),
        *(
            {"weight_map": {"a": name}}
            for name in ("../x.safetensors", "/x.safetensors", "x.bin", "x\0.safetensors")
        ),
        *({"weight_map": {"a": name}} for name in (1, None, [], "", ".safetensors/", "a\nb.safetensors")),
    ],
    ids=json.dumps,
)
def test_an_index_that_names_no_shards_of_the_folder(path, index):
    (path.parent / f"{path.name}.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json") as caught:
        weight_files(path.parent)
    assert "\n" not in str(caught.value)
