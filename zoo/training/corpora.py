"""Training texts: a corpus that a plugin registers, or a person's own files. Nothing is downloaded."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from zoo.architecture import Corpus, import_target
from zoo.errors import PluginError, ZooError
from zoo.files.reading import read_object
from zoo.host.registry import Registry, default_registry
from zoo.training.record import TRAINING
from zoo.training.user_text import UserText, is_path, pieces, read_documents

SAMPLE = 20_000  # documents that a tokenizer is trained on
CHARACTERS = 20_000_000  # at most, in those documents
# A character of a script that is written without spaces, or a run of other letters.
WORD = re.compile("[⺀-\U0003fffd]|[^\\W\\d_⺀-\U0003fffd]+")


@dataclass(frozen=True)
class TextCorpus:
    """An opened corpus: an endless stream of documents for a seed, and a finite held-out set.

    A document is a text, or, in a `parallel` corpus, a text and its translation. `own` is a person's own text, whose
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

    def in_pieces(self, fits: Callable[[str], bool]) -> TextCorpus:
        """A copy in which a person's own long texts are cut into pieces that fit."""
        if self.user_text is None or self.parallel:
            return self
        trained, held_out = (
            tuple(piece for text in texts for piece in pieces(text, fits))
            for texts in (self.user_text.trained, self.user_text.held_out)
        )
        return _own(replace(self.user_text, trained=trained, held_out=held_out))

    def only(self, fits: Callable[[Any], bool]) -> TextCorpus:
        """A copy without those of a person's own documents that do not fit; ZooError where none is left."""
        if self.user_text is None:
            return self
        splits = self.user_text.trained, self.user_text.held_out
        trained, held_out = (tuple(filter(fits, documents)) for documents in splits)
        left_out = sum(map(len, splits)) - len(trained) - len(held_out)
        if not (trained and held_out):
            raise ZooError(
                f"{self.name}: {left_out} documents are too long for a row: give a larger `length`"
            )
        if left_out:
            warnings.warn(f"{self.name}: {left_out} documents too long for a row are left out", stacklevel=2)
        return _own(replace(self.user_text, trained=trained, held_out=held_out))


def corpus(name: str, task: str, registry: Registry | None = None) -> TextCorpus:
    """The registered corpus of that name, else the text at that path, for a model of `task`; ZooError for neither."""
    registry = registry or default_registry()
    parallel = task == "translate"
    if name not in registry.table(Corpus) and is_path(name):
        return _own(read_documents(name, parallel))
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
                yield _checked(record, document, parallel)
            if document is None:
                raise PluginError(f"corpus {record.name}: {record.target} gave no document to train on")

    def validation() -> Iterator[Any]:
        return (_checked(record, document, parallel) for document in function("validation", 0))

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


def _checked(record: Corpus, document: Any, parallel: bool) -> Any:
    parts = document if parallel and isinstance(document, tuple) else (document,)
    if len(parts) != 1 + parallel or not all(isinstance(part, str) for part in parts):
        wanted = "a text and its translation" if parallel else "a text"
        raise PluginError(
            f"corpus {record.name}: {record.target} gave {type(document).__name__}, not {wanted}"
        )
    return document


def _own(text: UserText) -> TextCorpus:
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
