"""Safetensors folders: one `model.safetensors`, or shards named by an index. Headers are checked before MLX reads.

A header is data from a stranger: lengths, offsets and overlaps are checked before anything is read or allocated.
The dtype it names is what a tensor is.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr
from typing import Any

from zoo.errors import CheckpointError
from zoo.files.reading import file_in_folder, is_system_name, parse_json, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_HEADER = 100 * 2**20  # bytes, the format's own limit
MOST_TENSORS = 1_000_000
MOST_SIDE = 2**31 - 1  # MLX's sizes are 32-bit integers
MOST_SIDES = 32
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_SHARD = re.compile(r"[^/\x00-\x1f]+\.safetensors")

# Bits of one element, by the dtype's name in a header.
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass
class Tensors:
    """A checkpoint's tensors, unread: arrays by name, the dtype that each header names, and the files' metadata.

    `dequantized` collects the names of packed matrices that had to be unpacked.
    """

    arrays: dict[str, Any]
    dtypes: dict[str, str]
    metadata: dict[str, str]
    dequantized: set[str] = field(default_factory=set)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder; CheckpointError when there are none, or a shard is missing."""
    try:
        names = weight_names(folder, [entry.name for entry in os.scandir(folder)], folder)
    except OSError as error:
        raise CheckpointError(f"{folder}: {error.strerror}") from error
    paths = [file_in_folder(folder, name) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            raise CheckpointError(f"{folder / name}: the index names this shard, but it is missing")
    return [path for path in paths if path is not None]


def weight_names(folder: Path, names: Collection[str], where: object) -> list[str]:
    """Of the `names` that a folder or a hub repository holds, those of its weights, by the index in `folder`.

    Where both a sharded and a single model are there, only one is meant. Without an index, files whose names count a whole
    series (`…-00001-of-00002`) belong together. CheckpointError, starting with `where`, when
    there is none.
    """
    index = read_json(folder, INDEX, CheckpointError)
    if index is not None:
        return _shards(index, f"{where}: {INDEX}")
    if SINGLE in names:
        return [SINGLE]
    found = sorted(
        name
        for name in names
        if name.endswith(".safetensors") and "/" not in name and not is_system_name(name)
    )
    if len(found) == 1 or _is_series(found):
        return found
    if found:
        raise CheckpointError(f"{where}: several safetensors files, but no {INDEX} that says how they belong")
    pickles = sorted(name for name in names if name.endswith(PICKLES) and "/" not in name)
    if pickles:
        raise CheckpointError(
            f"{where}/{pickles[0]}: a pickle can run code and is never opened; convert it with transformers: "
            f"AutoModel.from_pretrained(FOLDER).save_pretrained(NEW), which writes safetensors"
        )
    raise CheckpointError(f"{where}: no {SINGLE} and no {INDEX}")


def _is_series(names: Sequence[str]) -> bool:
    """Whether names in their order count all files of one series."""
    series = re.sub(r"-\d{5}-of-", "-{:05}-of-", names[0]) if names else ""
    numbers = range(1, len(names) + 1)
    return series.endswith(f"-of-{len(names):05}.safetensors") and [*names] == [*map(series.format, numbers)]


def has_only_pickles(names: Collection[str]) -> bool:
    """Whether the files of these names hold weights as pickles, and not as safetensors."""
    files = [name for name in names if "/" not in name]
    return any(name.endswith(PICKLES) for name in files) and not any(
        name.endswith(".safetensors") for name in files
    )


def _shards(index: object, where: str) -> list[str]:
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where}: not an index of shards with a weight_map")
    for name in weight_map.values():
        if not isinstance(name, str) or not _SHARD.fullmatch(name):
            raise CheckpointError(f"{where}: names {name!r}, which is not a safetensors file of this folder")
    return sorted(set(weight_map.values()))


def open_tensors(folder: Path) -> Tensors:
    """The tensors of a folder, unread. CheckpointError names the file, and the tensor, that is wrong."""
    found = Tensors({}, {}, {})
    for path in weight_files(folder):
        file = load_file(path)
        twice = next((name for name in file.dtypes if name in found.dtypes), None)
        if twice:
            raise CheckpointError(f"{path}: tensor {twice} stands in an earlier shard too")
        found.arrays |= file.arrays
        found.dtypes |= file.dtypes
        found.metadata |= file.metadata
    return found


def load_file(path: Path) -> Tensors:
    """The tensors of one file, unread."""
    import mlx.core as mx

    from zoo.checkpoint.odd_dtypes import SHOWN_AS, load_odd

    dtypes, metadata = read_header(path)
    try:
        if not SHOWN_AS.keys().isdisjoint(dtypes.values()):
            return Tensors(load_odd(path, dtypes), dtypes, metadata)
        return Tensors(dict(mx.load(str(path))), dtypes, metadata)
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_header(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read the dtype of each tensor, as the header names it ("BF16"), and the metadata of the file.

    Read here and not by the `safetensors` library, which imports numpy for it: a third of the time to a first
    token. The format: eight bytes of header length, the header in JSON, then the tensors' bytes, gap-free.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size - 8, MOST_HEADER):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            text = file.read(length)
        if text.count(b"{") > MOST_TENSORS + 2:
            raise ValueError(f"more than {MOST_TENSORS:,} tensors")
        header = parse_json(text.decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("a header that is no JSON object")
        metadata = header.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict):
            raise ValueError("metadata that is no JSON object")
        _check_spans(header, size - 8 - length)
        return {name: entry["dtype"] for name, entry in header.items()}, metadata
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: a damaged or truncated safetensors file ({error})") from error


def _check_spans(header: dict[str, Any], size: int) -> None:
    """ValueError unless the tensors of a header are valid, and fill the `size` bytes after it one after the other."""
    end = 0
    for first, last, bits, name in sorted(_span(name, described) for name, described in header.items()):
        if first != end or (last - first) * 8 != bits:
            raise ValueError(f"tensor {name[:200]!r} does not lie where its dtype, shape and offsets say")
        end = last
    if end != size:
        raise ValueError(f"the tensors need {end} bytes, the file has {size}")


def _span(name: str, described: Any) -> tuple[int, int, int, str]:
    """The first and last byte of a tensor, its bits in total and its name; ValueError for an invalid entry."""
    described = described if isinstance(described, dict) else {}
    dtype, shape, span = (described.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        raise ValueError(f"tensor {name[:200]!r} has the unknown dtype {repr(dtype)}")
    if not _are_sizes(shape, MOST_SIDE) or len(shape) > MOST_SIDES:
        raise ValueError(f"tensor {name[:200]!r} has the shape {repr(shape)}")
    if not _are_sizes(span, sys.maxsize) or len(span) != 2:
        raise ValueError(f"tensor {name[:200]!r} has the offsets {repr(span)}")
    return *span, math.prod(shape) * BITS[dtype], name


def _are_sizes(value: object, most: int) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= most for size in value)
