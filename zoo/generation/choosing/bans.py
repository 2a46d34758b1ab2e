"""Which tokens must not come next, because of those that came before. Each question and each token takes constant time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class Endings:
    """Runs of tokens, each of two and more: those whose last token would complete one at the end of the text."""

    def __init__(self, runs: Iterable[Sequence[int]], given: Sequence[int] = ()) -> None:
        self._last: dict[tuple[int, ...], set[int]] = {}  # the last tokens of the runs that begin so
        for run in runs:
            *start, last = run
            self._last.setdefault(tuple(start), set()).add(last)
        self._lengths = sorted({len(start) for start in self._last})
        self._text = deque(given, maxlen=max(self._lengths, default=0))

    def completing(self) -> set[int]:
        """The tokens that would complete a run."""
        text = tuple(self._text)
        starts = (text[len(text) - length :] for length in self._lengths if length <= len(text))
        return set().union(*(self._last.get(start, ()) for start in starts))

    def took(self, token: int) -> None:
        """One more token of the text."""
        self._text.append(token)


class Ngrams:
    """The runs of `size` tokens of a text: those whose last token would repeat one."""

    def __init__(self, size: int, given: Sequence[int] = ()) -> None:
        self._followers: dict[tuple[int, ...], set[int]] = {}
        self._start = deque[int](maxlen=size - 1)  # the last tokens, with which the next would be a run
        for token in given:
            self.took(token)

    def completing(self) -> set[int]:
        """The tokens that would complete a run that the text has already."""
        return self._followers.get(tuple(self._start), set())

    def took(self, token: int) -> None:
        """One more token of the text."""
        if len(self._start) == self._start.maxlen:
            self._followers.setdefault(tuple(self._start), set()).add(token)
        self._start.append(token)
