"""Reads files of checkpoints and of the user, and JSON within bounds. Imports no mlx.

A checkpoint is not trusted. A link in its folder could point at any file of this machine, a pipe would block its reader
for ever, and a few megabytes of JSON can take gigabytes of memory or nest deeper than Python's stack.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

from zoo.errors import CheckpointError, ZooError

MAX_FILE_BYTES = 256 * 2**20  # of a tokenizer; weights are not read through here
MAX_JSON_BYTES = 64 * 2**20  # bytes; the largest published index and vocabulary are far below
MAX_JSON_VALUES = 10_000_000  # commas and opening brackets: what decides how much memory JSON takes
MAX_JSON_DEPTH = 64

_KINDS = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
_SHARED_BLOB = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SYSTEM_NAMES = frozenset({".DS_Store", "Icon\r", "__MACOSX", ".localized", "Thumbs.db", "desktop.ini"})


def is_system_name(name: str) -> bool:
    """Whether a file or folder of this name was added by a system rather than by a user or a program.

    macOS writes `._NAME` beside NAME on drives of other systems and in archives. Finder and Windows' Explorer keep in a folder how
    they show it.
    """
    return name.startswith("._") or name in SYSTEM_NAMES


def names_in(folder: Path) -> list[str]:
    """The names of the files and folders in `folder`, sorted, without files that a system added. OSError as `os.scandir`."""
    with os.scandir(folder) as entries:
        return sorted(
            e.name for e in entries if not is_system_name(e.name) or e.is_dir(follow_symlinks=False)
        )


def file_in_folder(folder: Path, name: str) -> Path | None:
    """The path of a checkpoint's file; None when there is no such file.

    CheckpointError for a link that leads out of the folder, and for a folder, a pipe or a device. Links of a snapshot in
    the hub's cache into the `blobs` of its own repository are followed.
    """
    path = folder / name
    try:
        root, target = Path(os.path.realpath(folder)), Path(os.path.realpath(path))
        os.lstat(path)
        if not target.is_relative_to(root) and not _is_own_blob(root, path, target):
            if path.is_symlink():
                raise CheckpointError(
                    f"{path}: is a link out of the folder, to {target}, and is not followed"
                )
            raise CheckpointError(f"{path}: lies outside of the folder, at {target}, and is not opened")
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # no file, or a link to none
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a zero byte, or half a character
        raise CheckpointError(f"{folder}: {name!r} cannot be a file name") from error
    if not stat.S_ISREG(mode):
        raise CheckpointError(f"{path}: is a {_KINDS.get(stat.S_IFMT(mode), 'device')}, not a file")
    return path


def _is_own_blob(root: Path, path: Path, target: Path) -> bool:
    """Whether a link of the hub snapshot `root` leads to a blob of the same repository.

    The layout is REPOSITORY/snapshots/REVISION/FILE -> REPOSITORY/blobs/HASH. A blob that several repositories have
    may in turn be a link to the cache's own store, CACHE/blobs/HA/HASH.
    """
    if root.parent.name != "snapshots":
        return False
    repository = root.parent.parent
    if target.parent == repository / "blobs":
        return True
    first = Path(os.path.normpath(os.path.join(os.path.realpath(path.parent), os.readlink(path))))
    return (
        first.parent == repository / "blobs"
        and not first.parent.is_symlink()
        and repository.name.startswith("models--")
        and target.is_relative_to(store := repository.parent / "blobs")
        and _SHARED_BLOB.fullmatch(target.relative_to(store).as_posix()) is not None
    )


def read_bytes(folder: Path, name: str, kind: type[ZooError], most: int = MAX_FILE_BYTES) -> bytes | None:
    """The bytes of a checkpoint's file, None without one. Raises `kind` for more than `most` bytes."""
    path = file_in_folder(folder, name)
    return None if path is None else _bytes_of(path, kind, most)


def read_text(folder: Path, name: str, kind: type[ZooError], most: int = MAX_FILE_BYTES) -> str | None:
    """The text of a checkpoint's file, None without one. Raises `kind` when it is not UTF-8."""
    data = read_bytes(folder, name, kind, most)
    return None if data is None else decoded(data, folder / name, kind)


def read_user_text(source: Path | TextIO, kind: type[ZooError], most: int = MAX_FILE_BYTES) -> str:
    """Read the text of the user's own file, which may be a link or a pipe, or of `sys.stdin`. Raises `kind` if it is not UTF-8."""
    data = _bytes_of(source, kind, most)
    if b"\0" in data:
        raise kind(f"{name_of(source)}: is a binary file, not a text (byte {data.index(0)} is zero)")
    return decoded(data, name_of(source), kind)


def name_of(source: Path | TextIO) -> str:
    """The name of a file in messages: its path, or "standard input" for a stream."""
    return str(source) if isinstance(source, Path) else "standard input"


def _bytes_of(source: Path | TextIO, kind: type[ZooError], most: int) -> bytes:
    try:
        with source.open("rb") if isinstance(source, Path) else nullcontext(source.buffer) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise kind(f"{name_of(source)}: {error.strerror}") from error
    if len(data) > most:
        raise kind(f"{name_of(source)}: larger than {most // 2**20} MiB")
    return data


def decoded(data: bytes, name: Path | str, kind: type[ZooError]) -> str:
    """The text of a file's bytes. Raises `kind` when they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise kind(f"{name}: not UTF-8 text (byte {error.start})") from error


def read_json(folder: Path, name: str, kind: type[ZooError]) -> Any:
    """The value in a checkpoint's JSON file, None without one. Raises `kind` for invalid or oversized JSON."""
    text = read_text(folder, name, kind, MAX_JSON_BYTES)
    try:
        return None if text is None else parse_json(text)
    except ValueError as error:
        raise kind(f"{folder / name}: not valid JSON ({error})") from error


def read_object(folder: Path, name: str, kind: type[ZooError], required: bool = False) -> dict[str, Any]:
    """The JSON object in a checkpoint's file; {} without a file, unless it is `required`."""
    value = read_json(folder, name, kind)
    if value is None and file_in_folder(folder, name) is None:
        if required:
            raise kind(f"{folder / name}: missing")
        return {}
    if not isinstance(value, dict):
        raise kind(f"{folder / name}: expected a JSON object, got {type(value).__name__}")
    return value


def read_object_at(path: Path, kind: type[ZooError], required: bool = False) -> dict[str, Any]:
    """Like `read_object`, for the path of the file."""
    return read_object(path.parent, path.name, kind, required)


def parse_json(text: str, *, most: int = MAX_JSON_VALUES, standard: bool = False) -> Any:
    """Parse JSON. ValueError when it is malformed, has a key twice, more than `most` values, or is nested too deeply.

    With `standard`, also for NaN and Infinity, which JSON does not have but configs do, and for whole numbers of more than
    20 digits.
    """
    if sum(map(text.count, "{[,")) > most:
        raise ValueError(f"more than {most:,} values")
    try:
        checks: dict[str, Any] = {"parse_constant": _not_json, "parse_int": _whole} if standard else {}
        value = json.loads(text, object_pairs_hook=_object, **checks)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_JSON_DEPTH} deep") from None
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            break
    else:
        raise ValueError(f"nested more than {MAX_JSON_DEPTH} deep")
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a UnicodeEncodeError is a ValueError
    return value


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. ValueError for a key with two values, because parsers differ in which one they keep."""
    values = dict(pairs)
    if len(values) < len(pairs):
        for key, value in pairs:
            if value != values[key]:
                raise ValueError(f"the key {key[:60]!r} has two values")
    return values
