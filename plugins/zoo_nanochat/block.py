"""The rotary positions of nanochat. Axes: K width of a head."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from zoo.blocks.position import Scaling


class BackwardTurns(Scaling):
    """Frequencies below zero."""

    def wavelengths(self, base: Sequence[float]) -> mx.array:  # -> (K/2,)
        return mx.array([-1 / f for f in base])
