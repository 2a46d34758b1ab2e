"""Penalties of tokens that the text has already: repetition, presence and frequency.

They are computed from counts that stay where the logits are, so that the next pass need not wait for the last token.
Axes: V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import mlx.core as mx


def repetition(logits: mx.array, seen: mx.array, penalty: float) -> mx.array:
    """Logits of the tokens `seen` (V,), booleans, divided by `penalty` if positive, else multiplied: (…, V) -> (…, V).

    Keskar et al., 2019, "CTRL", section 4.1; the case of negative logits is transformers'.
    """
    weighed = mx.where(logits < 0, logits * penalty, logits / penalty)
    return mx.where(seen, weighed, logits)


def presence_and_frequency(logits: mx.array, counts: mx.array, presence: float, frequency: float) -> mx.array:
    """Less `presence` for each token that came, and `frequency` for each time it did: (…, V), (V,) -> (…, V).

    OpenAI's definition: `counts` are those of generated tokens alone, the prompt's left out.
    """
    return logits - presence * (counts > 0) - frequency * counts


class Counts:
    """How often each token is among the last `size` (0: all), as an array (V,) of whole numbers."""

    def __init__(self, vocab: int, tokens: Sequence[int] = (), size: int = 0) -> None:
        latest = list(tokens[-size:] if size else tokens)
        self.array = mx.zeros(vocab, mx.int32)  # (V,)
        if latest:
            self.array = self.array.at[mx.array(latest)].add(1)
        self.size = size
        self._window = deque(mx.array([token]) for token in latest) if size else None

    def took(self, token: mx.array) -> None:
        """Count one more token (1,), evaluated or not."""
        self.array = self.array.at[token].add(1)
        if self._window is not None:
            self._window.append(token)
            if len(self._window) > self.size:
                self.array = self.array.at[self._window.popleft()].add(-1)


class Penalties:
    """The penalties of one sequence; the prompt's tokens, `given`, count for the repetition penalty only."""

    def __init__(
        self,
        vocab: int,
        given: Sequence[int],
        *,
        repetition_penalty: float = 1.0,
        context: int = 0,
        presence: float = 0.0,
        frequency: float = 0.0,
    ) -> None:
        self.repetition, self.presence, self.frequency = repetition_penalty, presence, frequency
        inside = [token for token in given if token < vocab]
        self._recent = Counts(vocab, inside, context) if repetition_penalty != 1 else None
        self._generated = Counts(vocab) if presence or frequency else None

    @property
    def active(self) -> bool:
        """Whether there is anything to change."""
        return self._recent is not None or self._generated is not None

    def __call__(self, logits: mx.array) -> mx.array:
        """The penalised logits, (1, V) -> (1, V)."""
        if self._recent is not None:
            logits = repetition(logits, self._recent.array > 0, self.repetition)
        if self._generated is not None:
            logits = presence_and_frequency(logits, self._generated.array, self.presence, self.frequency)
        return logits

    def took(self, token: mx.array) -> None:
        """Count one more token (1,), evaluated or not."""
        for counts in (self._recent, self._generated):
            if counts is not None:
                counts.took(token)
