"""ERNIE's router. Axes: B batch, T length, E experts."""

from __future__ import annotations

import mlx.core as mx

from zoo_deepseek.block import SigmoidRouter


class BalancedRouter(SigmoidRouter):
    """Top-k routing by a softmax over all experts, with a bias where they are chosen (Baidu, 2025)."""

    def activate(self, logits: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """Their softmax."""
        return mx.softmax(logits, axis=-1)
