"""Training texts: a corpus that a plugin registers, or a person's own file, folder, or JSON lines. Imports no mlx.

Nothing is downloaded. A text file is one document. Of a folder every `.txt`, `.md` and `.jsonl` file is read, in the
order of their names. Each line of a `.jsonl` file is a document: an object with a "text", or, for a translator, with a
"source" and a "target". A twentieth is held out for validation: every twentieth document, or, where there are fewer,
the last part of each.
"""

from __future__ import annotations

import glob
import hashlib
import random
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, TypeVar

from zoo.architecture import Corpus, import_target
from zoo.errors import PluginError, ZooError, pluralize
from zoo.files.reading import is_system_name, read_object
from zoo.host.registry import Registry, default_registry
from zoo.training.json_lines import json_lines, read_text, text_at
from zoo.training.record import TRAINING

SUFFIXES = (".txt", ".md", ".jsonl")
HELD_OUT = 20  # one document in so many, or one character
LONGEST = 1 << 20  # characters of a document: a longer one is cut at the end of a line
SAMPLE = 20_000  # documents that a tokenizer is trained on
CHARACTERS = 20_000_000  # at most, in those documents
# A character of a script that is written without spaces, or a run of other letters.
WORD = re.compile("[⺀-\U0003fffd]|[^\\W\\d_⺀-\U0003fffd]+")

Item = TypeVar("Item")


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

    def in_pieces(self, fits: Callable[[str], bool]) -> TextCorpus:
        """The corpus of these texts, long ones cut into pieces that fit."""
        trained, held_out = (
            tuple(piece for text in texts for piece in pieces(text, fits))
            for texts in (self.trained, self.held_out)
        )
        return user_corpus(replace(self, trained=trained, held_out=held_out))

    def only(self, fits: Callable[[Any], bool]) -> TextCorpus:
        """The corpus of those documents that fit; ZooError where none is left."""
        trained, held_out = (tuple(filter(fits, documents)) for documents in (self.trained, self.held_out))
        left_out = len(self.trained) + len(self.held_out) - len(trained) - len(held_out)
        if not (trained and held_out):
            raise ZooError(
                f"{self.path}: {pluralize(left_out, 'document')} too long for a row: give a larger `length`"
            )
        if left_out:
            warnings.warn(
                f"{self.path}: leaves out {pluralize(left_out, 'document')} too long for a row", stacklevel=2
            )
        return user_corpus(replace(self, trained=trained, held_out=held_out))


@dataclass(frozen=True)
class TextCorpus:
    """An opened corpus: an endless stream of documents for a seed, and a finite held-out set.

    A document is a text, or, in a `parallel` corpus, a text and its translation. `user_text` is a person's own text, whose
    documents have any length; None for a registered corpus. `names` gives the names that its texts contain, `answers`
    those among them that a text gives when it is asked; `sentences` is the stream with one sentence a document.
    """

    name: str
    training: Callable[[int], Iterator[Any]]
    validation: Callable[[], Iterable[Any]]
    parallel: bool = False
    user_text: UserText | None = None
    names: Callable[[], Collection[str]] = frozenset
    answers: Callable[[], Collection[str]] = frozenset
    sentences: Callable[[int], Iterator[str]] | None = None

    def sample(self) -> Iterator[str]:
        """The texts that a tokenizer is trained on; each of a person's own documents comes at most once."""
        documents = self.training(0) if self.user_text is None else iter(next(self.user_text.rounds(0)))
        room = CHARACTERS
        for text in islice(chain.from_iterable(documents) if self.parallel else documents, SAMPLE):
            yield text[:room]
            room -= len(text)
            if room <= 0:
                return


def corpus(name: str, task: str, registry: Registry | None = None) -> TextCorpus:
    """The registered corpus of that name, else the text at that path, for a model of `task`; ZooError for neither."""
    registry = registry or default_registry()
    parallel = task == "translate"
    is_path = any(mark in name for mark in "/\\.*?") or Path(name).exists()  # a file, a folder or a pattern
    if name not in registry.table(Corpus) and is_path:
        return user_corpus(read_documents(name, parallel))
    record = registry.table(Corpus).require(name)
    if task not in record.tasks:
        fitting = [n for n, other in registry.table(Corpus).listed().items() if task in other.tasks]
        raise ZooError(
            f"the corpus {record.name} is not for models that do {task}; registered for these: "
            f"{', '.join(fitting) or 'none'}"
        )
    return _registered(record, parallel)


def _registered(record: Corpus, parallel: bool) -> TextCorpus:
    function = record.load()

    def stream(function: Callable[..., Any], seed: int) -> Iterator[Any]:
        for round in count(seed):
            document = None
            for document in function("train", round):
                yield _check_document(record, document, parallel)
            if document is None:
                raise PluginError(f"corpus {record.name}: {record.target} gave no document to train on")

    def validation() -> Iterator[Any]:
        return (_check_document(record, document, parallel) for document in function("validation", 0))

    names, answers = (
        frozenset if target is None else import_target(target) for target in (record.names, record.answers)
    )
    alone = None if record.sentences is None else partial(stream, import_target(record.sentences))
    return TextCorpus(
        record.name,
        partial(stream, function),
        validation,
        parallel,
        names=names,
        answers=answers,
        sentences=alone,
    )


def _check_document(record: Corpus, document: object, parallel: bool) -> Any:
    parts = document if parallel and isinstance(document, tuple) else (document,)
    if len(parts) != 1 + parallel or not all(isinstance(part, str) for part in parts):
        wanted = "a text and its translation" if parallel else "a text"
        raise PluginError(
            f"corpus {record.name}: {record.target} gave {type(document).__name__}, not {wanted}"
        )
    return document


def user_corpus(text: UserText) -> TextCorpus:
    """The corpus of a person's own documents."""
    return TextCorpus(
        str(text.path),
        lambda seed: chain.from_iterable(text.rounds(seed)),
        lambda: iter(text.held_out),
        text.parallel,
        text,
    )


def trained_on(folder: Path, registry: Registry) -> Corpus | str | None:
    """The registered corpus that the checkpoint in a folder was trained on, or the path of a person's own text.

    None where no record says so. ZooError for a record that is not a JSON object.
    """
    settings = read_object(folder, TRAINING, ZooError).get("settings") if folder.is_dir() else None
    name = settings.get("corpus") if isinstance(settings, dict) else None
    if not isinstance(name, str):
        return None
    return registry.table(Corpus).require(name) if name in registry.table(Corpus) else name


def unseen_words(prompt: str, texts: TextCorpus) -> list[str]:
    """The words of a prompt that a sample of the corpus does not have, in any case, in the order of the prompt.

    >>> from zoo.training.corpora import corpus, unseen_words
    >>> unseen_words("The capital of France, and cats", corpus("atlas", "generate"))
    ['cats']
    """
    unseen = {word.casefold(): word for word in WORD.findall(prompt)}
    for text in texts.sample():
        if not unseen:
            break
        for word in WORD.findall(text):
            unseen.pop(word.casefold(), None)
    return list(unseen.values())


def read_documents(name: str, parallel: bool) -> UserText:
    """The documents at a path; ZooError naming the file, and the line where there is one, that cannot be used."""
    path = Path(name).expanduser()
    documents = [document for file in _files(path, parallel) for document in _documents(file, parallel)]
    if not documents:
        raise ZooError(f"{path}: holds no text")
    trained, held_out = _hold_out(path, documents, parallel)
    digest = hashlib.sha256()
    for document in documents:
        for part in document if parallel else (document,):
            digest.update(part.encode() + b"\0")
    return UserText(path, tuple(trained), tuple(held_out), parallel, digest.hexdigest())


def _files(path: Path, parallel: bool) -> list[Path]:
    suffixes = SUFFIXES[-1:] if parallel else SUFFIXES
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in suffixes)
        visible = [
            f
            for f in inside
            if not any(p.startswith(".") or is_system_name(p) for p in f.relative_to(path).parts)
        ]
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
    if file.suffix.lower() != ".jsonl":
        yield from _split_text(read_text(file).strip())
        return
    fields = ("source", "target") if parallel else ("text",)
    for origin, record in json_lines(file):
        values = [text_at(origin, record, name).strip() for name in fields]
        if any(values):
            if not all(values):
                raise ZooError(f'{origin}: "{fields[values.index("")]}" is empty')
            yield from [tuple(values)] if parallel else _split_text(values[0])


def _split_text(text: str) -> Iterator[str]:
    """The text in parts of at most about `LONGEST` characters."""
    start = 0
    while len(text) - start > LONGEST:
        end = text.rfind("\n", start, start + LONGEST) + 1 or start + LONGEST
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _hold_out(path: Path, documents: list[Any], parallel: bool) -> tuple[list[Any], list[Any]]:
    """The documents to train on, and those that are held out."""
    if not parallel and len(documents) < HELD_OUT:
        parts = [_tail_cut(text) for text in documents]
        return [head for head, _ in parts if head], [tail for _, tail in parts if tail]
    if len(documents) < 2:
        raise ZooError(f"{path}: holds one pair; validation needs another one")
    return divided(documents)


def divided(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """The items to train on, and those that are held out: every twentieth, or the last of 2 to 19; of one item, none."""
    share = min(HELD_OUT, max(len(items), 2))
    return [item for n, item in enumerate(items, 1) if n % share], list(items[share - 1 :: share])


def _tail_cut(text: str) -> tuple[str, str]:
    """The text without its last part, and that part, cut where a line or a word ends if it can be."""
    position = len(text) - max(len(text) // HELD_OUT, 1)
    for mark in ("\n", " "):
        place = text.rfind(mark, position // 2, position)
        if place > 0 and len(text) - place <= 2 * (len(text) - position):
            position = place + 1
            break
    return text[:position], text[position:]


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
