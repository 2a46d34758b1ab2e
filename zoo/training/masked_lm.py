"""The objective of masked tokens, as BERT's. Axes: B rows, S tokens a row, D width, P positions.

Whole words and whole names are masked: a name that is masked in part gives the rest away, and the fact that it answers is
not learned. Sources: whole words, Cui et al., 2021 (arXiv:1906.08101); spans, Joshi et al., 2020 (arXiv:1907.10529);
names, Sun et al., 2019 (ERNIE, arXiv:1904.09223).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mlx.core as mx

from zoo.tokenizer import Tokenizer
from zoo.training.loop import Batch
from zoo.training.loss import IGNORED, scored_loss
from zoo.training.objective import END, TrainingObjective, alike, mask_of, split_end, token
from zoo.training.record import TrainingSettings

MASKED, MASKED_NAMES = 0.15, 0.5  # shares of the words, and of the names, that BERT is asked for


def masked_lm(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    settings: TrainingSettings,
    names: Collection[str] = (),
    answers: Collection[str] = (),
) -> Iterator[Batch]:
    """Masked-LM batches, as BERT's, of whole words and names, masked differently each time that a text comes.

    Half the names, which carry a text's facts, and 15% of all else are to be predicted; of these 80% are masked, 10%
    become other tokens, 10% stay as they were (Devlin et al., 2018, section 3.1 and appendix A.1).
    """
    mask, spans, draw = mask_of(tokenizer), Spans(tokenizer, names, answers), random.Random(settings.seed)
    for rows in alike(texts, tokenizer, settings, closed=False):
        inputs, targets = [], []
        for ids in rows.tolist():
            ids, padding = split_end(ids, token(tokenizer, END))
            shown, expected = list(ids), [IGNORED] * len(ids)
            for span in hidden(spans(ids), draw, words=MASKED, names=MASKED_NAMES):
                kind = draw.random()
                for position in range(span.start, span.stop):
                    expected[position] = ids[position]
                    if kind < 0.9:
                        shown[position] = mask if kind < 0.8 else draw.randrange(tokenizer.vocab_size)
            inputs.append(shown + padding)
            targets.append(expected + [IGNORED] * len(padding))
        yield mx.array(inputs), mx.array(targets)


def masked_lm_loss(model: Any, inputs: mx.array, targets: mx.array) -> mx.array:
    """The loss of an encoder on the targets (B, S) that are not ignored; only their logits are computed."""
    return scored_loss(model.encode(inputs), model.head, targets)


@dataclass(frozen=True)
class Span:
    """Tokens from `start` up to `stop`, counted from 0, that are masked together: a word, or a `name`, which may be an `answer`."""

    start: int
    stop: int
    name: bool = False
    answer: bool = False


class Spans:
    """Finds the names and the words of a text among its tokens."""

    def __init__(
        self, tokenizer: Tokenizer, names: Collection[str] = (), answers: Collection[str] = ()
    ) -> None:
        """`names` are found as the tokenizer writes them alone, and after a space; `answers` are some of them."""
        self.tokenizer = tokenizer
        self.answers = _written(tokenizer, answers)
        self.names: dict[int, list[tuple[int, ...]]] = {}  # by their first token, the longest first
        for ids in sorted(_written(tokenizer, names) | self.answers, key=lambda ids: (-len(ids), ids)):
            self.names.setdefault(ids[0], []).append(ids)

    def __call__(self, ids: Sequence[int]) -> list[Span]:
        """The spans of a text, in order; each token lies in exactly one."""
        found: list[Span] = []
        position = 0
        while position < len(ids):
            name = self._name(ids, position)
            stop = position + max(len(name), 1)
            while not name and stop < len(ids) and self._joined(ids, stop):  # to the end of the word
                stop += 1
            found.append(Span(position, stop, bool(name), name in self.answers))
            position = stop
        return found

    def _name(self, ids: Sequence[int], position: int) -> tuple[int, ...]:
        """The ids of the longest name that begins at a position and does not end within a word; empty for none."""
        for name in self.names.get(ids[position], ()):
            stop = position + len(name)
            if tuple(ids[position:stop]) == name and not (stop < len(ids) and self._joined(ids, stop)):
                return name
        return ()

    def _joined(self, ids: Sequence[int], position: int) -> bool:
        """Whether the token at a position continues the word of the token before it."""
        return self._edges[ids[position - 1]][1] and self._edges[ids[position]][0]

    @cached_property
    def _edges(self) -> list[tuple[bool, bool]]:
        """For each token, whether its first and its last character can lie within a word."""
        texts = (self.tokenizer.decode([id], False) for id in range(self.tokenizer.vocab_size))
        return [(_inside(text[:1]), _inside(text[-1:])) for text in texts]


def _inside(letter: str) -> bool:
    """Whether a character can lie within a word; every Chinese character counts as a word of its own.

    U+FFFD stands for bytes that are no whole character.
    """
    return letter == "\ufffd" or (
        letter.isalnum() and not "\u2e80" <= letter <= "\u9fff" and letter < "\U00020000"
    )


def _written(tokenizer: Tokenizer, names: Collection[str]) -> set[tuple[int, ...]]:
    """The tokens of each name alone, and after a space."""
    return {tuple(tokenizer.encode(text, False)) for name in names for text in (name, f" {name}")}


def hidden(spans: Iterable[Span], draw: random.Random, *, words: float, names: float) -> list[Span]:
    """The spans to mask: each name with the probability `names`, each other word with `words`."""
    return [span for span in spans if draw.random() < (names if span.name else words)]


MASKED_LM = TrainingObjective(
    masked_lm,
    masked_lm,
    masked_lm_loss,
    steps=12_000,
    batch=8,
    rate=1e-3,
    sentences=True,
    names=True,
    vocab=2304,
)
