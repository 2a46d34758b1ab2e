"""Safetensors folders: one `model.safetensors`, or shards named by an index. Headers are checked before MLX reads.

A header is data from a stranger: the `safetensors` library validates it (lengths, overlaps, bounds) without
reading a tensor, and gives the dtype it names, which is what a tensor is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass
class Tensors:
    """A checkpoint's tensors, unread: arrays by name, the dtype that each header names, and the files' metadata."""

    arrays: dict[str, Any]
    dtypes: dict[str, str]
    metadata: dict[str, str]


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
    """Each tensor's dtype as the header names it ("BF16"), and the file's metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no iterator)
            return dtypes, file.metadata() or {}
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: a damaged or truncated safetensors file ({error})") from error
