"""The phrasebook: English sentences and their Chinese translations, both made by one small grammar.

A parallel corpus that a translation model of a million parameters can learn from scratch, and whose answers
can be checked: one English sentence has one translation here. `phrasebook_grammar` writes each sentence in
both languages at once, with the words of `phrasebook.tsv`; this module decides which sentences a split has.

A fixed tenth of the word pairs (verb and noun, adjective and noun) is held out. The two words of such a pair
never stand in one training sentence, each of them does in many, and every sentence of "validation" and "test"
has such a pair, related as verb and object, subject and verb, or adjective and noun. So those splits measure
whether words were learned, and not only sentences.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal

from zoo.errors import ZooError
from zoo_corpora.phrasebook_grammar import SentenceDraft, Word, fitting, words
from zoo_corpora.phrasebook_sentences import Author
from zoo_corpora.question import Question, uniform

Split = Literal["train", "validation", "test"]
WordPair = tuple[str, str]  # a verb or an adjective, and a noun

SPLITS: tuple[Split, ...] = ("train", "validation", "test")

HELD_OUT = 0.1  # share of the word pairs that training never shows, half for each of the other splits
FLOOR = 4  # at most one in `FLOOR` of a word's pairs is held out
SIZE = 500  # sentences in "validation", and in "test"
MOST = 5  # of them with the same held-out pair

SHOWN = {("love", "NLP")}  # pairs of a fixed phrase, which training shows whatever the draw


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation. `unseen` are the held-out word pairs related in it: none in training."""

    source: str
    target: str
    unseen: tuple[WordPair, ...] = ()


def pairs(split: Split, seed: int = 0) -> Iterator[SentencePair]:
    """The corpus as a stream of pairs, the same for the same `split` and `seed`.

    "train" never ends, and repeats a short sentence now and then; take what is needed with
    `itertools.islice`. "validation" and "test" have `SIZE` different sentences each, always the same ones, in
    an order that `seed` decides.

    Raises ZooError for another split.
    """
    if split not in SPLITS:
        raise ZooError(f"phrasebook: no split {split!r}; there are {', '.join(SPLITS)}")
    if split == "train":
        return _drawn("train", random.Random(seed))
    chosen = list(_finite(split))
    random.Random(seed).shuffle(chosen)
    return iter(chosen)


def documents(split: Split, seed: int = 0) -> Iterator[tuple[str, str]]:
    """The sentences of `pairs` with their translations alone."""
    return ((pair.source, pair.target) for pair in pairs(split, seed))


def examination(every: bool) -> Iterator[Question]:
    """The questions of `zoo evaluate`: `SIZE` sentences of training, and those of "test"."""
    for split in ("train", "test"):
        for pair in islice(pairs(split), SIZE):
            yield Question(pair.source, pair.target, "", "translation", "en-zh", split == "test")


@cache
def held_out() -> dict[WordPair, Split]:
    """The held-out word pairs, and the split that each is for.

    The draw depends on the two words alone. In no relation (a verb's subjects, its objects, an adjective's
    nouns) is more than one in `FLOOR` of a word's pairs held out, so that training has every word in all that
    it does, and a word of few pairs keeps them all.
    """
    relations: dict[WordPair, set[str]] = {}
    for relation, word, noun in _related():
        relations.setdefault((word.english, noun.english), set()).add(relation)
    left = Counter((relation, word) for pair, of in relations.items() for relation in of for word in pair)
    for key in left:
        left[key] //= FLOOR
    chosen: dict[WordPair, Split] = {}
    for draw, pair in sorted((uniform(*pair), pair) for pair in relations.keys() - SHOWN):
        keys = [(relation, word) for relation in relations[pair] for word in pair]
        if draw < HELD_OUT and all(left[key] for key in keys):
            left.subtract(keys)
            chosen[pair] = "test" if draw < HELD_OUT / 2 else "validation"
    return chosen


@cache
def _finite(split: Split) -> tuple[SentencePair, ...]:
    """The pairs of a split that ends: the first different ones of a stream of its own."""
    chosen: dict[str, SentencePair] = {}
    shown: Counter[WordPair] = Counter()
    for pair in _drawn(split, random.Random(split)):  # a text seeds alike in every process
        if pair.source not in chosen and all(shown[each] < MOST for each in pair.unseen):
            chosen[pair.source] = pair
            shown.update(pair.unseen)
            if len(chosen) == SIZE:
                break
    return tuple(chosen.values())


def _drawn(split: Split, generator: random.Random) -> Iterator[SentencePair]:
    """Every sentence that the grammar draws and `split` may have."""
    author = Author(generator)
    while True:
        draft = author.sentence()
        related = _held_out_among(draft, split)
        if related is not None:
            yield SentencePair(*draft.finished(generator), unseen=related)


def _held_out_among(draft: SentenceDraft, split: Split) -> tuple[WordPair, ...] | None:
    """The held-out pairs related in `draft`; None if it is no sentence of `split`."""
    table = held_out()
    beside = {
        table[pair] for first in draft.words for second in draft.words if (pair := (first, second)) in table
    }
    if split == "train":
        return None if beside else ()
    related = tuple(dict.fromkeys(pair for pair in draft.links if pair in table))
    return related if related and beside == {split} else None


def _related() -> Iterator[tuple[str, Word, Word]]:
    """Every verb and adjective with every noun that the grammar may relate it to, and how."""
    for verb in words("verb"):
        subjects = (*verb.classes, "kin") if "person" in verb.classes else verb.classes
        yield from (("subject", verb, noun) for noun in fitting(subjects))
        yield from (("object", verb, noun) for noun in fitting(verb.objects))
    for adjective in words("adjective"):
        yield from (("attribute", adjective, noun) for noun in fitting(adjective.classes))
