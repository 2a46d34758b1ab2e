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


def presence(logits: mx.array, counts: mx.array, penalty: float) -> mx.array:
    """Less `penalty` for each token that came: (…, V), (V,) -> (…, V).

    OpenAI's definition, as is that of `frequency`: `counts` are those of generated tokens alone, the prompt's left out.
    """
    return logits - penalty * (counts > 0)


def frequency(logits: mx.array, counts: mx.array, penalty: float) -> mx.array:
    """Less `penalty` for each time that a token came: (…, V), (V,) -> (…, V)."""
    return logits - penalty * counts


class Counts:
    """How often each token is among the last `size` (0: all), as an array (V,) of whole numbers."""

    def __init__(self, vocab: int, tokens: Sequence[int] = (), size: int = 0) -> None:
        latest = list(tokens[-size:] if size else tokens)
        self.array = mx.zeros(vocab, mx.int32)  # (V,)
        if latest:
            self.array = self.array.at[mx.array(latest)].add(1)
        self.size = size
        self._window = deque(mx.array([token]) for token in latest) if size else None

    def update(self, token: mx.array) -> None:
        """Count one more token (1,), evaluated or not."""
        self.array = self.array.at[token].add(1)
        if self._window is not None:
            self._window.append(token)
            if len(self._window) > self.size:
                self.array = self.array.at[self._window.popleft()].add(-1)
