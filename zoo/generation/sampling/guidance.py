"""Classifier-free guidance: moves the logits of the prompt away from those of a negative prompt.

Ho and Salimans, 2022, "Classifier-Free Diffusion Guidance"; for text Sanchez et al., 2023, "Stay on topic with
Classifier-Free Guidance", equation 7. Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import mlx.core as mx

from zoo.generation.sampling.logits import logprobs

_NEGATIVE: ContextVar[bool] = ContextVar("negative", default=False)


def runs_negative_prompt() -> bool:
    """Whether the model is running on a negative prompt, and not on the text."""
    return _NEGATIVE.get()


def guided(logits: mx.array, negative: mx.array, scale: float) -> mx.array:
    """n + `scale` · (p − n), (1, V) twice -> (1, V); p and n are the log-probabilities of `logits` and `negative`."""
    away = logprobs(negative)
    return away + scale * (logprobs(logits) - away)


class Guidance:
    """The guidance of one sequence. `run(token)` gives the negative prompt's logits (1, V) after one more token (1,).

    `run(None)` gives the first. It is called when the logits are asked for, once for each token of the text.
    """

    def __init__(self, scale: float, run: Callable[[mx.array | None], mx.array]) -> None:
        self.scale, self._run = scale, run
        self._unread: list[mx.array | None] = [None]
        self._negative: mx.array | None = None  # (1, V)

    def __call__(self, logits: mx.array) -> mx.array:
        """The guided logits, (1, V) -> (1, V)."""
        running = _NEGATIVE.set(True)
        try:
            while self._unread:
                self._negative = self._run(self._unread.pop(0))
        finally:
            _NEGATIVE.reset(running)
        assert self._negative is not None
        return guided(logits, self._negative, self.scale)

    def follow(self, token: mx.array) -> None:
        """One more token (1,) of the text, evaluated or not."""
        self._unread.append(token)
