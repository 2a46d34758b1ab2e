"""DeepSeek-V2's router. Axes: B batch, T length, E experts."""

from __future__ import annotations

import mlx.core as mx

from zoo_deepseek.block import GroupRouter


class SoftmaxGroupRouter(GroupRouter):
    """Group-limited top-k routing by a softmax over all experts (DeepSeek-V2, 2024, section 2.2.2)."""

    def activate(self, logits: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """Their softmax."""
        return mx.softmax(logits, axis=-1)
