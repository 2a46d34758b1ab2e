"""The corpora that the zoo makes itself, by name. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from zoo.errors import ZooError
from zoo.training import atlas, phrasebook

SAMPLE = 20_000  # documents that a tokenizer is trained on


@dataclass(frozen=True)
class Corpus:
    """Texts to train on: an endless stream for a seed, and a finite held-out set.

    A document is a text, or, in a `parallel` corpus, a text and its translation. `names` gives those of what its
    texts tell of, `answers` those among them that a text gives when it is asked; `sentences` is the stream with
    one sentence a document.
    """

    name: str
    training: Callable[[int], Iterator[Any]]
    validation: Callable[[], Iterable[Any]]
    parallel: bool = False
    names: Callable[[], Collection[str]] = frozenset
    answers: Callable[[], Collection[str]] = frozenset
    sentences: Callable[[int], Iterator[str]] | None = None

    def sample(self) -> Iterator[str]:
        """The texts that a tokenizer is trained on."""
        documents = self.training(0)
        return islice(chain.from_iterable(documents) if self.parallel else documents, SAMPLE)


CORPORA = {
    "atlas": Corpus(
        "atlas",
        lambda seed: atlas.documents("train", seed),
        lambda: atlas.documents("validation"),
        names=atlas.names,
        answers=atlas.answers,
        sentences=lambda seed: atlas.documents("train", seed, longest=1),
    ),
    "phrasebook": Corpus(
        "phrasebook",
        lambda seed: ((pair.source, pair.target) for pair in phrasebook.pairs("train", seed)),
        lambda: ((pair.source, pair.target) for pair in phrasebook.pairs("validation")),
        parallel=True,
    ),
}


def corpus(name: str) -> Corpus:
    """The corpus of that name; ZooError, naming those there are, for none."""
    if name not in CORPORA:
        raise ZooError(f"no corpus {name!r}; there are: {', '.join(CORPORA)}")
    return CORPORA[name]
