"""Results that took time, kept between builds and shared by both languages: keyed by what made them and by all code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
FOLDER = DOCS / "_build" / "kept"


def cached_result(make: Callable[[], Any], *key: str) -> Any:
    """What `make` returns, a value that JSON can hold; read from a file when the same `key` and code made it before."""
    name = hashlib.sha256("\0".join((digest(), *key)).encode()).hexdigest()
    path = FOLDER / f"{name}.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    value = make()
    FOLDER.mkdir(parents=True, exist_ok=True)
    begun = path.with_suffix(f".{os.getpid()}")
    begun.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    begun.rename(path)  # whole or not at all: another process may read it
    return value


def cached_folder(make: Callable[[Path], None], name: str) -> Path:
    """The folder that `make` fills, given an empty one; kept as `cached_result` keeps values, the last one of a name."""
    path = FOLDER / name / digest()
    if not path.is_dir():
        begun = path.with_suffix(f".{os.getpid()}")
        begun.mkdir(parents=True)
        make(begun)
        try:
            begun.rename(path)  # whole or not at all
        except OSError:  # another process was quicker
            shutil.rmtree(begun)
        for other in path.parent.iterdir():
            if other != path and not other.suffix:
                shutil.rmtree(other, ignore_errors=True)  # made by other code
    return path


@cache
def digest() -> str:
    """Changes whenever the zoo, a plugin, a figure or a record does."""
    found = hashlib.sha256()
    made_from = ("building", "figures", "pictures", "records")
    for folder in (ROOT / "zoo", ROOT / "plugins", *(DOCS / name for name in made_from)):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc" and "drawn" not in path.parts:
                status = path.stat()
                found.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return found.hexdigest()
