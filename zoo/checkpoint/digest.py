"""A cheap digest of a checkpoint, by which the ranks of a run compare theirs."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.errors import CheckpointError
from zoo.files.reading import file_in_folder

START = 2**20  # bytes read of each file: the headers of weights, and whole configs
SUFFIXES = (".safetensors", ".gguf", ".json", ".model", ".txt", ".jinja")


def digest(path: Path) -> str:
    """A digest of the names, sizes and first `START` bytes of a folder's weight, config and tokenizer files, or of one file.

    The numbers of a large weight file are not read: two checkpoints that differ in them alone have one digest.
    CheckpointError for a file that cannot be read.
    """
    from hashlib import blake2b

    try:
        names = sorted(os.listdir(path)) if path.is_dir() else [path.name]
        folder = path if path.is_dir() else path.parent
        found = blake2b(digest_size=8)
        for name in names:
            file = file_in_folder(folder, name) if name.endswith(SUFFIXES) else None
            if file is not None:
                found.update(f"{name}\0{file.stat().st_size}\0".encode(errors="surrogateescape"))
                with file.open("rb") as opened:
                    found.update(opened.read(START))
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror or error}") from error
    return found.hexdigest()
