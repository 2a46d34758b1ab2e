"""A person's own text to train on: a file, a folder, or JSON lines. Imports no mlx.

A text file is one document. Of a folder every `.txt`, `.md` and `.jsonl` file is read, in the order of their names.
Each line of a `.jsonl` file is a document: an object with a "text", or, for a translator, with a "source" and a
"target". A twentieth is held out for validation: every twentieth document, or, where there are fewer, the last part
of each.
"""

from __future__ import annotations

import glob
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.errors import ZooError

SUFFIXES = (".txt", ".md", ".jsonl")
HELD_OUT = 20  # one document in so many, or one character
LONGEST = 1 << 20  # characters of a document: a longer one is cut at the end of a line


@dataclass(frozen=True)
class UserText:
    """Documents of a person's own: texts, or pairs where `parallel`. `digest` changes when any of them does."""

    path: Path
    trained: tuple[Any, ...]
    held_out: tuple[Any, ...]
    parallel: bool
    digest: str

    def rounds(self, seed: int) -> Iterator[tuple[Any, ...]]:
        """All documents to train on, again and again, each time in another order."""
        order, documents = random.Random(seed), list(self.trained)
        while True:
            order.shuffle(documents)
            yield tuple(documents)


def is_path(name: str) -> bool:
    """Whether this names a file, a folder or a pattern rather than a registered corpus."""
    return any(mark in name for mark in "/\\.*?") or Path(name).exists()


def read_documents(name: str, parallel: bool) -> UserText:
    """The documents at a path; ZooError naming the file, and the line where there is one, that cannot be used."""
    path = Path(name).expanduser()
    found = [document for file in _files(path, parallel) for document in _documents(file, parallel)]
    if not found:
        raise ZooError(f"{path}: holds no text")
    trained, held_out = _divided_pairs(path, found) if parallel else _divided(found)
    digest = hashlib.sha256()
    for document in found:
        for part in document if parallel else (document,):
            digest.update(part.encode() + b"\0")
    return UserText(path, tuple(trained), tuple(held_out), parallel, digest.hexdigest())


def _files(path: Path, parallel: bool) -> list[Path]:
    suffixes = SUFFIXES[-1:] if parallel else SUFFIXES
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes)
        visible = [f for f in inside if not any(p.startswith(".") for p in f.relative_to(path).parts)]
        if not visible:
            raise ZooError(f"{path}: holds no {' or '.join(suffixes)} file")
        return visible
    if path.exists():
        if parallel and path.suffix.lower() != ".jsonl":
            raise ZooError(
                f'{path}: a translator learns from a .jsonl file with a "source" and a "target" a line'
            )
        return [path]
    matching = [Path(file) for file in sorted(glob.glob(str(path), recursive=True)) if Path(file).is_file()]
    if not matching:
        raise ZooError(f"{path}: no such file or folder to train on")
    return [file for each in matching for file in _files(each, parallel)]


def _documents(file: Path, parallel: bool) -> Iterator[Any]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ZooError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        # A mark at the file's beginning is not among the bytes that the error counts.
        line_number, byte = error.object[: error.start].count(b"\n") + 1, error.object[error.start]
        raise ZooError(f"{file}, line {line_number}: not UTF-8 (byte 0x{byte:02x})") from None
    if not text.strip():
        raise ZooError(f"{file}: is empty")
    if file.suffix.lower() != ".jsonl":
        yield from _parted(text.strip())
        return
    fields = ("source", "target") if parallel else ("text",)
    # Not splitlines: JSON leaves U+2028 and its like in a line.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            values = _fields(f"{file}, line {number}", line, fields)
            if any(values):
                yield from [tuple(values)] if parallel else _parted(values[0])


def _fields(origin: str, line: str, fields: tuple[str, ...]) -> list[str]:
    """The texts of a JSON line's fields, stripped."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ZooError(f"{origin}: not JSON ({getattr(error, 'msg', type(error).__name__)})") from None
    if not isinstance(record, dict):
        raise ZooError(f"{origin}: no JSON object")
    for name in fields:
        if name not in record:
            raise ZooError(f'{origin}: has no "{name}"')
        if not isinstance(record[name], str):
            raise ZooError(f'{origin}: "{name}" is no text')
        try:
            record[name].encode()
        except UnicodeEncodeError:
            raise ZooError(f'{origin}: "{name}" holds half a character (a lone surrogate)') from None
    values = [record[name].strip() for name in fields]
    if any(values) and not all(values):
        raise ZooError(f'{origin}: "{fields[values.index("")]}" is empty')
    return values


def _parted(text: str) -> Iterator[str]:
    """The text in parts of at most about `LONGEST` characters."""
    start = 0
    while len(text) - start > LONGEST:
        end = text.rfind("\n", start, start + LONGEST) + 1 or start + LONGEST
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _divided(documents: list[str]) -> tuple[list[str], list[str]]:
    if len(documents) >= HELD_OUT:
        held_out = documents[HELD_OUT - 1 :: HELD_OUT]
        return [text for index, text in enumerate(documents) if (index + 1) % HELD_OUT], held_out
    parts = [_tail_cut(text) for text in documents]
    return [head for head, _ in parts if head], [tail for _, tail in parts if tail]


def _tail_cut(text: str) -> tuple[str, str]:
    """The text without its last part, and that part, cut where a line or a word ends if it can be."""
    position = len(text) - max(len(text) // HELD_OUT, 1)
    for mark in ("\n", " "):
        found = text.rfind(mark, position // 2, position)
        if found > 0 and len(text) - found <= 2 * (len(text) - position):
            position = found + 1
            break
    return text[:position], text[position:]


def _divided_pairs(path: Path, pairs: list[Any]) -> tuple[list[Any], list[Any]]:
    if len(pairs) < 2:
        raise ZooError(f"{path}: holds one pair, and one is held out for validation")
    if len(pairs) < HELD_OUT:
        return pairs[:-1], pairs[-1:]
    return [p for index, p in enumerate(pairs) if (index + 1) % HELD_OUT], pairs[HELD_OUT - 1 :: HELD_OUT]


def pieces(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """A text in pieces that fit, halved where a line or a word ends if it can be."""
    text = text.strip()
    if len(text) < 2 or fits(text):
        if text:
            yield text
        return
    half = len(text) // 2
    ends = (text.rfind(mark, half // 2, half) + 1 for mark in ("\n", " "))
    position = next((end for end in ends if end), half)
    yield from pieces(text[:position], fits)
    yield from pieces(text[position:], fits)
