"""`read_examples`: the examples of a file, a folder or a dataset of the hub, each checked before anything uses it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from zoo.checkpoint.hub import DATA, download_dataset
from zoo.errors import ZooError
from zoo.files.reading import is_system_name
from zoo.training.corpora import divided, read_documents
from zoo.training.example_lines import examples_of, keys_of
from zoo.training.examples import Example, TextExample

SPLITS = {"train": ("train",), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
TEXT = (".txt", ".md")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
CONVERT = """pandas.read_parquet("x.parquet").to_json("x.jsonl", orient="records", lines=True)"""


@dataclass(frozen=True)
class Data:
    """The examples of a path, all of one kind: to train on, to validate with, and to test with."""

    path: str
    train: tuple[Example, ...]
    valid: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()

    @property
    def kind(self) -> type[Example]:
        """The class of the examples."""
        return type(next(iter((*self.train, *self.valid, *self.test))))

    @cached_property
    def digest(self) -> str:
        """A SHA-256 that changes when an example, its place or its part changes, but not when a file is moved."""
        hashed = hashlib.sha256()
        for part in (self.train, self.valid, self.test):
            hashed.update(f"{len(part)}\n".encode())
            for example in part:
                values = {**vars(example), "origin": type(example).__name__}
                hashed.update(json.dumps(values, sort_keys=True).encode() + b"\n")
        return hashed.hexdigest()


def read_examples(path: str | Path) -> Data:
    """Read the examples of a file, a folder, or a dataset of the hub ("owner/name").

    A `.jsonl` file has one JSON object a line, a `.json` file may be an array of them; `FORMS` has those of each
    form; other keys are not looked at. A `.txt` or `.md` file is one text. A folder has train.jsonl and perhaps
    valid.jsonl and test.jsonl, or text files. Where nothing is given for validation, a part is held out: every
    twentieth example, or the last of 2 to 19; of a text file its last twentieth. All examples have one kind.

    ZooError, in one line with the file and the line's number, for a line that cannot be used.
    """
    place = Path(path).expanduser()
    if not place.exists() and HUB_ID.fullmatch(str(path)):
        place = download_dataset(str(path), lambda names: _splits(str(path), names).values())
    files = _files(place)
    if not files:
        texts = read_documents(str(place), False)
        trained, held_out = (
            tuple(TextExample(str(place), text) for text in part) for part in (texts.trained, texts.held_out)
        )
        return Data(str(path), trained, held_out)
    parts = {split: tuple(examples_of(file)) for split, file in files.items()}
    _check_kinds([example for part in parts.values() for example in part])
    if "train" in parts and "valid" not in parts:
        trained_on, validation = divided(parts["train"])
        parts |= {"train": tuple(trained_on), "valid": tuple(validation)}
    return Data(str(path), parts.pop("train", ()), **parts)


def _files(place: Path) -> dict[str, Path]:
    """The file of each split at a path; none for text files. ZooError for a path that holds no data."""
    if place.is_dir():
        files = (file.relative_to(place) for file in place.rglob("*") if file.is_file())
        inside = sorted(file.as_posix() for file in files if not any(map(is_system_name, file.parts)))
        texts = any(name.lower().endswith(TEXT) for name in inside)
        return {split: place / name for split, name in _splits(str(place), inside, not texts).items()}
    if not place.exists():
        raise ZooError(f"{place}: no such file or folder of data")
    suffix = place.suffix.lower()
    if suffix not in DATA + TEXT:
        raise _unreadable(str(place), [place.name])
    return {"train": place} if suffix in DATA else {}


def _splits(place: str, names: Iterable[str], required: bool = True) -> dict[str, str]:
    """Of files' names in a folder, one for each split; ZooError where two are for one.

    They lie in the folder or in its folder "data". A single file of JSON is for training, whatever its name.
    """
    names = list(names)
    for folder in (".", "data"):
        inside = [
            path for path in map(Path, names) if str(path.parent) == folder and path.suffix.lower() in DATA
        ]
        files: dict[str, str] = {}
        for split, stems in SPLITS.items():
            match [path for path in inside if path.stem.lower() in stems]:
                case [path, *others]:
                    if others:
                        raise ZooError(f"{place}: {path} and {others[0]} are both for {split}: remove one")
                    files[split] = path.as_posix()
        if files or len(inside) == 1:
            return files or {"train": inside[0].as_posix()}
    if required:
        raise _unreadable(place, names)
    return {}


def _unreadable(place: str, names: Sequence[str]) -> ZooError:
    """The error for a path without data that can be read."""
    parquet = next((name for name in names if name.endswith(".parquet")), None)
    if parquet:
        return ZooError(f"{place}: {parquet} is Parquet, which is not read; convert it: {CONVERT}")
    if Path(place).suffix and not Path(place).is_dir():
        return ZooError(f"{place}: data is a .jsonl, .json, .txt or .md file, or a folder with train.jsonl")
    return ZooError(f"{place}: holds no train.jsonl, valid.jsonl or test.jsonl, and no text file")


def _check_kinds(examples: Sequence[Example]) -> None:
    """ZooError where examples are not all of one kind."""
    first = examples[0]
    other = next((example for example in examples if type(example) is not type(first)), None)
    if other is not None:
        here, there = keys_of(type(other)), keys_of(type(first))
        raise ZooError(f"{other.origin}: is an example of {here}, but {first.origin} of {there}")
