"""The tokenizer of a run, as bytes by file name: given by the caller, or trained on the corpus."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from zoo.architecture import TokenizerFormat
from zoo.errors import TokenizerError
from zoo.host.registry import Registry
from zoo.tokenizer import Tokenizer, load_tokenizer
from zoo.tokenizer.settings import KINDS, SETTINGS, vocabulary_files
from zoo.training.corpora import TextCorpus
from zoo.training.vocabulary import save_tokenizer, train_tokenizer

NAMES = {*(name for kind in KINDS for name in kind), "target.spm", *SETTINGS}


def files_of(given: Path) -> dict[str, bytes]:
    """The files of a tokenizer that a person gives, a folder or a tokenizer.json; TokenizerError for neither."""
    folder = given
    if given.is_file():
        if given.name != "tokenizer.json":
            return {"tokenizer.json": given.read_bytes()}
        folder = given.parent
    has = (lambda name: (folder / name).is_file()) if folder == given else "tokenizer.json".__eq__
    chosen = vocabulary_files(has)
    if not chosen:
        raise TokenizerError(f"{given}: holds no tokenizer; give a folder with one, or a tokenizer.json")
    names = {*chosen, "target.spm", *SETTINGS}
    return {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}


def trained_on(texts: TextCorpus, vocab: int, names: Collection[str] = ()) -> dict[str, bytes]:
    """The files of a tokenizer of `vocab` tokens, `names` among them, trained on a corpus."""
    with tempfile.TemporaryDirectory() as folder:
        save_tokenizer(train_tokenizer(texts.sample(), vocab, names), folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def opened(files: Mapping[str, bytes], registry: Registry) -> Tokenizer:
    """The tokenizer of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / Path(name).name).write_bytes(data)
        tokenizer = load_tokenizer(Path(folder), formats=registry.table(TokenizerFormat).listed())
    if tokenizer is None:
        raise TokenizerError("the run holds no tokenizer")
    return tokenizer
