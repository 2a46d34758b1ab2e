"""The corpora that the zoo makes itself, by name. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from zoo.errors import ZooError
from zoo.training import atlas

SAMPLE = 20_000  # documents that a tokenizer is trained on


@dataclass(frozen=True)
class Corpus:
    """Texts to train on: an endless stream for a seed, and a finite held-out set."""

    name: str
    training: Callable[[int], Iterator[str]]
    validation: Callable[[], Iterable[str]]

    def sample(self) -> Iterator[str]:
        """The documents that a tokenizer is trained on."""
        return islice(self.training(0), SAMPLE)


CORPORA = {
    "atlas": Corpus("atlas", lambda seed: atlas.documents("train", seed), lambda: atlas.documents("validation")),
}


def corpus(name: str) -> Corpus:
    """The corpus of that name; ZooError, naming those there are, for none."""
    if name not in CORPORA:
        raise ZooError(f"no corpus {name!r}; there are: {', '.join(CORPORA)}")
    return CORPORA[name]
