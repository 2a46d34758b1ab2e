"""A cheap digest of a checkpoint, by which the ranks of a run compare theirs, and a tuning run knows its source again."""

from __future__ import annotations

from pathlib import Path

from zoo.errors import CheckpointError
from zoo.files.reading import file_in_folder, names_in

WHOLE = 2**26  # bytes that are read from the beginning: headers of weights, and whole configs
BLOCKS, BLOCK = 256, 2**14  # of a longer file, how many blocks are read beside them, and the bytes of each
SUFFIXES = (".safetensors", ".gguf", ".json", ".model", ".txt", ".jinja")


def digest(path: Path) -> str:
    """The SHA-256 of a folder's weight, config and tokenizer files, or of one file: of names, sizes and contents.

    Of a file longer than `WHOLE` bytes, the first `WHOLE` bytes and blocks throughout the rest are read, the last one
    included: a model that was trained further has another digest, one in which a single tensor was changed may not.
    CheckpointError for a file that cannot be read.
    """
    from hashlib import sha256

    try:
        names = names_in(path) if path.is_dir() else [path.name]
        folder = path if path.is_dir() else path.parent
        found = sha256()
        for name in names:
            file = file_in_folder(folder, name) if name.endswith(SUFFIXES) else None
            if file is not None:
                size = file.stat().st_size
                found.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
                with file.open("rb") as opened:
                    found.update(opened.read(WHOLE))
                    for block in range(1, BLOCKS + 1 if size > WHOLE else 1):
                        opened.seek(max(WHOLE + (size - WHOLE) * block // BLOCKS - BLOCK, WHOLE))
                        found.update(opened.read(BLOCK))
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror or error}") from error
    return found.hexdigest()
