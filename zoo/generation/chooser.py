"""The chooser of one text's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from zoo.generation.constraints import Constraints
from zoo.generation.sampling import Sampling, sampler
from zoo.generation.settings import Settings


class Chooser:
    def __init__(self, settings: Settings, *, forced: Constraints, filters=()):
        sampling = Sampling(
            settings.temperature, settings.top_k, settings.top_p, settings.min_p, tuple(filters)
        )
        self._draw = sampler(sampling, settings.seed)
        self._forced = forced if forced.active else None
        self.plain = settings.greedy and self._forced is None
        self.waits = self._forced is not None and self._forced.look_back
        self._tokens: list[int] = []
        self._count = 0

    def choose(self, logits: mx.array) -> mx.array:
        if self._forced is not None:
            before: Sequence[int] = self._tokens if self.waits else range(self._count)
            logits = self._forced(logits, [before])
        self._count += 1
        return self._draw(logits)

    def took(self, token: int) -> None:
        self._tokens.append(token)
