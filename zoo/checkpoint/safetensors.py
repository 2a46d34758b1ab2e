"""Safetensors folders: one `model.safetensors`, or shards named by an index. Headers are checked before MLX reads.

A header is data from a stranger: lengths, offsets and overlaps are checked before anything is read or allocated.
The dtype it names is what a tensor is.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MOST_HEADER = 100 * 2**20  # bytes, the format's own limit
MOST_TENSORS = 1_000_000
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

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
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return found
    if found:
        raise CheckpointError(
            f"{folder}: several safetensors files, but no {INDEX} that says how they belong"
        )
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise CheckpointError(
            f"{folder / pickles[0]}: a pickle can run code and is never opened; convert it with transformers: "
            f"AutoModel.from_pretrained(FOLDER).save_pretrained(NEW), which writes safetensors"
        )
    raise CheckpointError(f"{folder}: no {SINGLE} and no {INDEX}")


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        paths = [folder / name for name in names]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{index}: not an index of shards with a weight_map") from error
    for path in paths:
        if path.parent != folder or not path.name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: names {str(path)!r}, which is not a safetensors file of this folder"
            )
        if not path.is_file():
            raise CheckpointError(f"{path}: the index names this shard, but it is missing")
    return paths


def open_tensors(folder: Path) -> Tensors:
    """The tensors of a folder, unread. CheckpointError names the file, and the tensor, that is wrong."""
    import mlx.core as mx

    found = Tensors({}, {}, {})
    for path in weight_files(folder):
        dtypes, metadata = read_header(path)
        twice = next((name for name in dtypes if name in found.dtypes), None)
        if twice:
            raise CheckpointError(f"{path}: tensor {twice} stands in an earlier shard too")
        found.dtypes |= dtypes
        found.metadata |= metadata
        try:
            found.arrays |= mx.load(str(path))
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"{path}: {error}") from error
    return found


def read_header(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Each tensor's dtype as the header names it ("BF16"), and the file's metadata.

    Read here and not by the `safetensors` library, which imports numpy for it: a third of the time to a first
    token. The format: eight bytes of header length, the header in JSON, then the tensors' bytes, gap-free.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size - 8, MOST_HEADER):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header = json.loads(file.read(length).decode("utf-8"))
        metadata = header.pop("__metadata__", None) or {}
        _check_spans(header, size - 8 - length)
        return {name: entry["dtype"] for name, entry in header.items()}, dict(metadata)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{path}: a damaged or truncated safetensors file ({reason})") from error


def _check_spans(header: dict[str, Any], size: int) -> None:
    """ValueError unless the tensors fill the `size` bytes after the header, one after the other."""
    if len(header) > MOST_TENSORS:
        raise ValueError(f"{len(header)} tensors")
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        shape = entry["shape"]
        if entry["dtype"] not in BITS:
            raise ValueError(f"tensor {name} has the unknown dtype {entry['dtype']!r}")
        if not isinstance(shape, list) or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError(f"tensor {name} has the shape {shape}")
        if first != end or (last - first) * 8 != math.prod(shape) * BITS[entry["dtype"]]:
            raise ValueError(f"tensor {name} does not lie where its dtype, shape and offsets say")
        end = last
    if end != size:
        raise ValueError(f"the tensors need {end} bytes, the file has {size}")
