"""Mirostat 2: keeps the surprise of the text near a target by a bound that it adapts.

Basu et al., 2021, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", without its estimate of
an exponent. Surprise is -log2 of a probability, in bits. Axes: V vocabulary.
"""

from __future__ import annotations

import math

import mlx.core as mx

from zoo.generation.sampling.logits import NEG_INF, logprobs


def surprise(logits: mx.array) -> mx.array:
    """The surprise of each token in bits, (…, V) -> (…, V)."""
    return -logprobs(logits) / math.log(2)


def at_most(logits: mx.array, bound: mx.array) -> mx.array:
    """Keep the tokens of at most `bound` bits, and the likeliest in any case: (…, V), () -> (…, V)."""
    best = logits.max(axis=-1, keepdims=True)
    return mx.where((surprise(logits) <= bound) | (logits == best), logits, NEG_INF)


class Mirostat:
    """The bound of one sequence, which begins at twice the target `tau` (bits).

    After each token it falls by `eta` times what the surprise has above the target. The surprise is that of the
    distribution before the bound, as the paper has it; llama.cpp's is that of the renormalised rest.
    """

    def __init__(self, tau: float, eta: float) -> None:
        self.tau, self.eta = tau, eta
        self.bound = mx.array(2.0 * tau)
        self._surprise: mx.array | None = None  # (1, V), of the last distribution

    def __call__(self, logits: mx.array) -> mx.array:
        """The logits within the bound, (1, V) -> (1, V)."""
        self._surprise = surprise(logits)
        return at_most(logits, self.bound)

    def update(self, token: mx.array) -> None:
        """The token (1,) that was drawn of the last distribution, evaluated or not."""
        assert self._surprise is not None, "a token is drawn of a distribution"
        # The bound keeps growing where nothing surprises; beyond the surprise of any token it does nothing.
        error = mx.take(self._surprise[0], token)[0] - self.tau
        self.bound = self.bound - self.eta * error
