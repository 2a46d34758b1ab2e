"""Whole-word and whole-name masking: which tokens of a text are masked together.

A name that is masked in part gives the rest away, and the fact that it answers is not learned. Sources: whole
words, Cui et al., 2021 (arXiv:1906.08101); spans, Joshi et al., 2020 (arXiv:1907.10529); names, Sun et al., 2019
(ERNIE, arXiv:1904.09223). Positions are counted in tokens from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from zoo.tokenizer import Tokenizer


@dataclass(frozen=True)
class Span:
    """Tokens from `start` up to `stop` that are masked together: a word, or a `name`, which may be an `answer`."""

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


def hidden(spans: Iterable[Span], draw: Random, *, words: float, names: float) -> list[Span]:
    """The spans to mask: each name with the probability `names`, each other word with `words`."""
    return [span for span in spans if draw.random() < (names if span.name else words)]
