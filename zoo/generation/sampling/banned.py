"""Bans of the tokens that would complete a sequence. An update and a look-up take constant time. Axes: V vocabulary."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import mlx.core as mx

from zoo.generation.sampling.logits import NEG_INF, mask_tokens


class SequenceCompletions:
    """Finds the tokens that would complete one of some sequences, each of two tokens or more, at the end of a text."""

    def __init__(self, runs: Iterable[Sequence[int]], given: Sequence[int] = ()) -> None:
        self._last: dict[
            tuple[int, ...], set[int]
        ] = {}  # the last tokens of the sequences with this beginning
        for run in runs:
            *start, last = run
            self._last.setdefault(tuple(start), set()).add(last)
        self._lengths = sorted({len(start) for start in self._last})
        self._text = deque(given, maxlen=max(self._lengths, default=0))

    def completing(self) -> set[int]:
        """The tokens that would complete a sequence."""
        text = tuple(self._text)
        starts = (text[len(text) - length :] for length in self._lengths if length <= len(text))
        return set().union(*(self._last.get(start, ()) for start in starts))

    def update(self, token: int) -> None:
        """One more token of the text."""
        self._text.append(token)


class BannedSequences:
    """Removes the tokens that would complete one of some sequences, each of one token or more, at the end of the text.

    `looks_back`: which these are depends on the tokens before.
    """

    def __init__(self, vocab: int, runs: Iterable[Sequence[int]], given: Sequence[int] = ()) -> None:
        runs = list(runs)
        self._single = marked(vocab, [run[0] for run in runs if len(run) == 1])
        several = [run for run in runs if len(run) > 1]
        self._endings = SequenceCompletions(several, given) if several else None
        self.looks_back = bool(several)

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits without these tokens, (1, V) -> (1, V)."""
        if self._single is not None:
            logits = mx.where(self._single, NEG_INF, logits)
        return logits if self._endings is None else mask_tokens(logits, sorted(self._endings.completing()))

    def update(self, token: int) -> None:
        """One more token of the text."""
        if self._endings is not None:
            self._endings.update(token)


class NoRepeatNgrams:
    """Removes the tokens that would repeat an n-gram, a sequence of `size` tokens, of the text."""

    looks_back = True

    def __init__(self, size: int, given: Sequence[int] = ()) -> None:
        self._followers: dict[tuple[int, ...], set[int]] = {}
        self._start = deque[int](maxlen=size - 1)  # the last `size` - 1 tokens
        for token in given:
            self.update(token)

    def completing(self) -> set[int]:
        """The tokens that would repeat an n-gram."""
        return self._followers.get(tuple(self._start), set())

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits without these tokens, (1, V) -> (1, V)."""
        return mask_tokens(logits, sorted(self.completing()))

    def update(self, token: int) -> None:
        """One more token of the text."""
        if len(self._start) == self._start.maxlen:
            self._followers.setdefault(tuple(self._start), set()).add(token)
        self._start.append(token)


def marked(vocab: int, tokens: Iterable[int]) -> mx.array | None:
    """The tokens as booleans (V,), None for none; ids outside the vocabulary are left out."""
    known = [token for token in tokens if token < vocab]
    if not known:
        return None
    found = mx.zeros(vocab, mx.bool_)
    found[mx.array(known)] = True
    return found
