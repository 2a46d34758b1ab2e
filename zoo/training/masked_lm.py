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
from itertools import pairwise

import mlx.core as mx
import mlx.nn as nn

from zoo.errors import NothingToPredict
from zoo.generation.loop.prompt import mask_id, padded, split_special_ids
from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.training.example_objective import ExampleObjective, padded_ids
from zoo.training.examples import TextExample
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
            chosen = hidden(spans(ids), draw, words=MASKED, names=MASKED_NAMES)
            shown, expected = masked(ids, chosen, mask, tokenizer.vocab_size, draw)
            inputs.append(shown + padding)
            targets.append(expected + [IGNORED] * len(padding))
        yield mx.array(inputs), mx.array(targets)


def masked(
    ids: list[int], spans: Iterable[Span], mask: int, vocab: int, draw: random.Random
) -> tuple[list[int], list[int]]:
    """A text whose `spans` are to be predicted, masked or not, and its targets."""
    shown, expected = list(ids), [IGNORED] * len(ids)
    for span in spans:
        kind = draw.random()
        for position in range(span.start, span.stop):
            expected[position] = ids[position]
            if kind < 0.9:
                shown[position] = mask if kind < 0.8 else draw.randrange(vocab)
    return shown, expected


def masked_lm_loss(
    model: nn.Module, inputs: mx.array, targets: mx.array, padding_mask: mx.array | None = None
) -> mx.array:
    """The loss of an encoder on the targets (B, S) that are not ignored; only their logits are computed.

    `padding_mask` (B, S) is 1 for a token, 0 for padding.
    """
    return scored_loss(model.encode(inputs, padding_mask), model.head, targets)


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
        self.answers = _ids_of_names(tokenizer, answers)
        self.names: dict[int, list[tuple[int, ...]]] = {}  # by their first token, the longest first
        for ids in sorted(_ids_of_names(tokenizer, names) | self.answers, key=lambda ids: (-len(ids), ids)):
            self.names.setdefault(ids[0], []).append(ids)

    def __call__(self, ids: Sequence[int]) -> list[Span]:
        """The spans of a text, in order; each token lies in exactly one."""
        spans: list[Span] = []
        position = 0
        while position < len(ids):
            name = self._name(ids, position)
            stop = position + max(len(name), 1)
            while not name and stop < len(ids) and self._continues(ids, stop):  # to the end of the word
                stop += 1
            spans.append(Span(position, stop, bool(name), name in self.answers))
            position = stop
        return spans

    def _name(self, ids: Sequence[int], position: int) -> tuple[int, ...]:
        """The ids of the longest name that begins at a position and does not end within a word; empty for none."""
        for name in self.names.get(ids[position], ()):
            stop = position + len(name)
            if tuple(ids[position:stop]) == name and not (stop < len(ids) and self._continues(ids, stop)):
                return name
        return ()

    def _continues(self, ids: Sequence[int], position: int) -> bool:
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


def _ids_of_names(tokenizer: Tokenizer, names: Collection[str]) -> set[tuple[int, ...]]:
    """Token ids of each name, with and without a leading space."""
    return {tuple(tokenizer.encode(text, False)) for name in names for text in (name, f" {name}")}


def hidden(spans: Iterable[Span], draw: random.Random, *, words: float, names: float) -> list[Span]:
    """The spans to mask: each name with the probability `names`, each other word with `words`."""
    return [span for span in spans if draw.random() < (names if span.name else words)]


@dataclass(frozen=True)
class MaskedRow:
    """The ids of a text, or a part of it, and its words."""

    ids: list[int]
    words: list[Span]
    cut: int = 0

    @property
    def length(self) -> int:
        """The number of ids."""
        return len(self.ids)


def of_texts(loaded: Loaded) -> ExampleObjective:
    """Masked tokens of single texts; NothingToPredict for a model without a head, or a tokenizer without a mask."""
    if loaded.recipe.head is None:
        raise NothingToPredict(f"{loaded.folder}: has no head that predicts masked tokens")
    mask_id(loaded)
    return ExampleObjective((TextExample,), encode, collate, masked_lm_loss)


def encode(example: TextExample, loaded: Loaded, length: int) -> list[MaskedRow]:
    """The rows of a text, a long one in parts. The special tokens around each part are never masked."""
    assert loaded.tokenizer is not None
    before, ids, after = split_special_ids(loaded.tokenizer, example.text)
    joined = continues_word(example.text, loaded.tokenizer.offsets(example.text) or [(0, 0)] * len(ids))
    room = max(length - len(before) - len(after), 1)
    rows = []
    for start in range(0, len(ids), room):
        part = ids[start : start + room]
        first = [place for place in range(len(part)) if not place or not joined[start + place]]
        words = [Span(len(before) + word, len(before) + stop) for word, stop in pairwise([*first, len(part)])]
        rows.append(MaskedRow(before + part + after, words))
    return rows


def continues_word(text: str, offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """For the range of characters of each token, whether it continues the word, or the character, of the token before."""
    ends = [0, *(end for _, end in offsets)]
    return [
        start < end or (_inside(text[max(start - 1, 0) : start]) and _inside(text[start : start + 1]))
        for (start, _), end in zip(offsets, ends, strict=False)
    ]


def collate(rows: Sequence[MaskedRow], loaded: Loaded, order: random.Random) -> Batch:
    """Inputs, targets and the padding mask, each (B, S). Of each text at least one word is to be predicted."""
    assert loaded.tokenizer is not None
    mask, vocab = mask_id(loaded), loaded.tokenizer.vocab_size
    pairs = []
    for row in rows:
        chosen = hidden(row.words, order, words=MASKED, names=MASKED_NAMES) or [order.choice(row.words)]
        pairs.append(masked(row.ids, chosen, mask, vocab, order))
    inputs, targets = zip(*pairs, strict=True)
    tokens, padding_mask = padded(inputs)
    return tokens, padded_ids(targets, IGNORED), *([] if padding_mask is None else [padding_mask])


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
    examples=of_texts,
)
