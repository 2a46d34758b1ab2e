"""The header of a GGUF file: its metadata, and where each tensor lies. Every field is validated.

The gguf package's own reader does not check counts and lengths, and makes several numpy arrays of every word of a
vocabulary. Its tables say what the tensors' types are. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo.errors import CheckpointError

MAGIC = b"GGUF"
# What else files of this name begin with, and what to do then.
OTHERS = {
    b"vers": "a pointer of Git LFS in the place of the file; fetch it with `git lfs pull`",
    **dict.fromkeys(
        (b"<!do", b"<!DO", b"<htm"),
        "a web page in the place of the file; on the hub, download from /resolve/",
    ),
    **dict.fromkeys(
        (b"tjgg", b"lmgg", b"fmgg", b"algg"),
        "a GGML file, the format before GGUF; newer conversions are GGUF",
    ),
}
# Types that ggml had for a while, for matrices in the order of a processor's kernels.
REMOVED = {
    **dict.fromkeys((31, 32, 33), "a Q4_0 in the order of a processor"),
    **dict.fromkeys((36, 37, 38), "an IQ4_NL in the order of a processor"),
}
PIECE = re.compile(r".*\.gguf[.-](part\d+of\d+|split-[a-z]+)")  # in the name of a file that was cut anywhere
VERSIONS = (2, 3)
MOST_BYTES = 2**28  # of a header; those of published files stay below 2**25
MOST_VALUES = 2**22  # of metadata, the words of arrays included
MOST_NAME = 256  # bytes
MOST_AXES = 4
ALIGNMENT = 32  # bytes, where the metadata name no other

# The kinds of metadata values, by their number: scalars as `struct` calls them, text, arrays.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: `kind` ("Q4_0"), `shape` (…, O, I), and the `size` bytes of `path` that begin at `offset`.

    Its numbers are multiplied by those of `scale`, if there is one: one number, or one for each matrix.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    size: int
    scale: TensorInfo | None = None


@dataclass(frozen=True)
class Header:
    """The contents of a GGUF header: `metadata` by key, `tensors` by name."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]


def shown(value: object) -> str:
    """A value of the metadata as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def decimal(value: object) -> Any:
    """The shortest decimal number whose nearest float32 this is: 1e-05 and not 9.999999747378752e-06."""
    if not isinstance(value, float) or abs(value) > 1e38:
        return value
    narrow = np.float32(value)
    return float(str(narrow)) if float(narrow) == value else value


def read_header(path: Path) -> Header:
    """The header of one file; CheckpointError, naming the file, for one that is no GGUF or contradicts itself."""
    try:
        with path.open("rb") as file:
            return _read(path, file, path.stat().st_size)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except (ValueError, struct.error) as error:
        if PIECE.fullmatch(path.name):
            raise CheckpointError(
                f"{path}: a piece of a file; join all pieces to one (cat A B > C)"
            ) from error
        raise CheckpointError(f"{path}: a damaged or truncated GGUF file ({error})") from error


def _read(path: Path, file: BinaryIO, size: int) -> Header:
    cursor = Cursor(file, min(size, MOST_BYTES))
    if (magic := cursor.take(4)) != MAGIC:
        raise CheckpointError(f"{path}: {OTHERS.get(magic, 'not a GGUF file')}")
    version = cursor.number("I")
    if version and not version & 0xFFFF:
        raise CheckpointError(f"{path}: a big-endian GGUF file, which cannot be read")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise CheckpointError(f"{path}: GGUF version {version}; {known} can be read")
    tensor_count, key_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    cursor.count(key_count, "keys")
    for _ in range(key_count):
        key = cursor.name("key")
        if key in metadata:
            raise ValueError(f"key {key} stands there twice")
        metadata[key] = cursor.value(cursor.number("I"), key)
    cursor.count(tensor_count, "tensors")
    found = [_tensor(cursor, path) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"general.alignment {shown(alignment)} is no power of two")
    start = -(-cursor.position // alignment) * alignment
    return Header(path, metadata, _located(found, start, alignment, size))


def with_scales(header: Header) -> Header:
    """The same, where the numbers by which matrices of NVFP4 are multiplied belong to these: NAME.scale to NAME.weight.

    NAME.input_scale, for programs that compute in NVFP4, is left out. CheckpointError for other numbers than one a matrix.
    """
    tensors = dict(header.tensors)
    for name, entry in header.tensors.items():
        stem = name.removesuffix(".weight")
        if entry.kind == "NVFP4" and name != stem:
            scale = tensors.pop(f"{stem}.scale", None)
            tensors.pop(f"{stem}.input_scale", None)
            if scale is not None and scale.shape not in ((1,), entry.shape[:-2]):
                raise CheckpointError(f"{header.path}: {scale.name} holds {shown(scale.shape)} numbers")
            tensors[name] = replace(entry, scale=scale)
    return replace(header, tensors=tensors)


class Cursor:
    """Reads a header from its start; ValueError when it exceeds the file or the limits."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._values = MOST_VALUES
        self.position = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if size > self._size - self.position:
            raise ValueError("its header goes on past its end")
        self.position += size
        return self._file.read(size)

    def number(self, code: str) -> Any:
        """The next number, of the kind that `struct` calls `code`."""
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        """The next text."""
        return self.take(self.number("Q")).decode("utf-8")

    def name(self, what: str) -> str:
        """The next text, which must be short and of one line."""
        length = self.number("Q")
        if not 0 < length <= MOST_NAME:
            raise ValueError(f"the name of a {what} has {length} bytes")
        name = self.take(length).decode("utf-8")
        if not name.isprintable():
            raise ValueError(f"the name of a {what} is {name!r}")
        return name

    def count(self, count: int, what: str) -> None:
        """Subtract from the values that are still allowed; ValueError when these are fewer."""
        if count > self._values:
            raise ValueError(f"{count} {what}")
        self._values -= count

    def value(self, kind: int, key: str) -> Any:
        """The next value of the metadata: a number, a text, or a tuple of either."""
        if kind == TEXT:
            return self.text()
        if kind != ARRAY:
            return self.number(_scalar(kind, key))
        kind, count = self.number("I"), self.number("Q")
        self.count(count, f"values in {key}")
        if kind == TEXT:
            return tuple(self.text() for _ in range(count))
        code = _scalar(kind, key)
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize(f"<{code}")))


def _scalar(kind: int, key: str) -> str:
    if kind not in SCALARS:
        raise ValueError(
            f"{key} is {'an array of arrays' if kind == ARRAY else f'of the unknown kind {kind}'}"
        )
    return SCALARS[kind]


def _tensor(cursor: Cursor, path: Path) -> TensorInfo:
    """The next tensor, its offset counted from the first one's. The file has the inputs first."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name, axes = cursor.name("tensor"), cursor.number("I")
    if not 1 <= axes <= MOST_AXES:
        raise ValueError(f"tensor {name} has {axes} axes")
    shape = tuple(cursor.number("Q") for _ in range(axes))[::-1]
    if not all(shape) or math.prod(shape) >= 2**63:
        raise ValueError(f"tensor {name} has the shape {shown(shape)}")
    number, offset = cursor.number("I"), cursor.number("Q")
    if number not in list(GGMLQuantizationType):
        removed = f", {REMOVED[number]}; quantize the model anew" if number in REMOVED else ""
        raise CheckpointError(f"{path}: tensor {name} is of the unknown type {number}{removed}")
    kind = GGMLQuantizationType(number)
    block, block_size = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise ValueError(f"tensor {name}: rows of {shape[-1]} are no whole blocks of {kind.name}, {block}")
    return TensorInfo(name, kind.name, shape, path, offset, math.prod(shape) // block * block_size)


def _located(found: list[TensorInfo], start: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """The tensors by name; ValueError unless each lies within the file, from `start`, and overlaps no other."""
    tensors: dict[str, TensorInfo] = {}
    for entry in found:
        if entry.name in tensors:
            raise ValueError(f"tensor {entry.name} stands there twice")
        if entry.offset % alignment or start + entry.offset + entry.size > size:
            raise ValueError(f"tensor {entry.name} does not lie within the file")
        tensors[entry.name] = replace(entry, offset=start + entry.offset)
    end = 0
    for entry in sorted(tensors.values(), key=lambda entry: entry.offset):
        if entry.offset < end:
            raise ValueError(f"tensor {entry.name} overlaps the one before it")
        end = entry.offset + entry.size
    return tensors
