"""The format of a checkpoint, by its name, its first bytes, or the files in its folder. Imports no mlx."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from zoo.architecture import CheckpointFormat
from zoo.errors import SourceError
from zoo.files.reading import file_in_folder
from zoo.host.registry import Registry

FOLDER = "folder"  # the format of a folder that no other one recognises
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.")  # in the name of all shards but the first


def detect_format(path: Path, registry: Registry) -> tuple[Path, CheckpointFormat]:
    """The checkpoint at a path, and its format; in a folder without a config.json it is the only checkpoint file.

    SourceError for a file that no format reads, and for a folder with several of them.
    """
    if path.exists() and not path.is_dir():
        return path, _format_of_file(path, registry)
    default = registry.table(CheckpointFormat).require(FOLDER)
    found = _chosen(registry, path, lambda format: format is not default and _has(path, format.files))
    if found is None and not _has(path, default.files):
        suffixes = suffixes_of(registry)
        names = sorted(entry.name for entry in path.glob("*") if entry.name.endswith(suffixes))
        names = [name for name in names if not _LATER_SHARD.search(name)]
        if len(names) > 1:
            kinds = " and ".join(sorted({Path(name).suffix[1:].upper() for name in names}))
            raise SourceError(f"{path}: holds several {kinds} files; name one: {', '.join(names)}")
        if names and (file := file_in_folder(path, names[0])) is not None:
            return file, _format_of_file(file, registry)
    return path, found or default


def suffixes_of(registry: Registry) -> tuple[str, ...]:
    """The suffixes of files that are whole checkpoints."""
    formats = registry.table(CheckpointFormat).listed().values()
    return tuple(dict.fromkeys(suffix for format in formats for suffix in format.suffixes))


def _format_of_file(path: Path, registry: Registry) -> CheckpointFormat:
    if path.is_file():
        longest = max(len(format.magic) for format in registry.table(CheckpointFormat).listed().values())
        try:
            with path.open("rb") as file:
                start = file.read(longest)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        found = _chosen(registry, path, lambda format: path.name.endswith(format.suffixes)) or _chosen(
            registry, path, lambda format: bool(format.magic) and start.startswith(format.magic)
        )
        if found is not None:
            return found
    files = " or ".join(suffixes_of(registry))
    raise SourceError(f"{path}: give the folder that holds config.json and the weights, or a {files} file")


def _has(folder: Path, files: Collection[str]) -> bool:
    return bool(files) and all(file_in_folder(folder, name) is not None for name in files)


def _chosen(
    registry: Registry, path: Path, reads: Callable[[CheckpointFormat], bool]
) -> CheckpointFormat | None:
    """The format that reads a path, a third party's before the zoo's own; PluginError for several third parties'."""
    claims = [claim for claim in registry.table(CheckpointFormat).pairs() if reads(claim[1])]
    return registry.table(CheckpointFormat).winner(claims, str(path))[1] if claims else None
