"""The indexer of DeepSeek-V3.2.

Axes: B batch, T query length, S key length, D width, Q width of the queries' latent, J heads and I width of a head of the
indexer, k tokens chosen.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.feedforward import top_k
from zoo_deepseek import spec as specs


class Indexer(nn.Module):
    """Which tokens to attend to: those of the largest Σⱼ wⱼ · ReLU(qⱼ · k) (DeepSeek-V3.2, 2025, equation 1).

    In float32, as the choice is between scores that are close. No gradient flows through it.
    """

    def __init__(
        self, spec: specs.Indexer, *, dim: int, index: int = 0, key_norm: nn.Module, rope: nn.Module
    ) -> None:
        super().__init__()
        self.spec = spec
        self.query = nn.Linear(spec.query_rank, spec.heads * spec.head_dim, bias=False)
        self.key = nn.Linear(dim, spec.head_dim, bias=False)
        self.weights = nn.Linear(dim, spec.heads, bias=False)
        self.key_norm, self.rope = key_norm, rope

    def keys(self, x: mx.array, offset: Any) -> mx.array:  # (B, T, D) -> (B, 1, T, I)
        """The keys of new tokens, the first of them at `offset`."""
        return self.placed(self.key(x), offset)

    def placed(self, keys: mx.array, offset: Any) -> mx.array:  # (B, T, I) -> (B, 1, T, I)
        """Projected keys, normalised and rotated."""
        return mx.stop_gradient(self.rope(self.key_norm(keys)[:, None], offset))

    def __call__(
        self, x: mx.array, source: mx.array, offset: Any, keys: mx.array, visible: mx.array | None
    ) -> mx.array | None:
        """The columns of the chosen keys, (B, 1, T, k); None where there are no more than k keys.

        (B, T, D), the queries' latents (B, T, Q), all keys (B, 1, S, I), which of them are seen (broadcasts to (B, 1, T, S)).
        """
        if self.sees_all(keys.shape[2]):
            return None
        scores = self.score(x, source, offset, keys)[:, None]  # (B, 1, T, S)
        if visible is not None:
            scores = mx.where(visible, scores, -mx.inf)
        return top_k(scores, min(self.spec.top_k, keys.shape[2]))

    def sees_all(self, keys: int) -> bool:
        """Whether there is nothing to choose between."""
        return keys <= self.spec.top_k

    def score(self, x: mx.array, source: mx.array, offset: Any, keys: mx.array) -> mx.array:
        """How well each key suits each new token: (B, T, D), (B, T, Q), (B, 1, S, I) -> (B, T, S)."""
        heads = self.query(source).reshape(*x.shape[:2], self.spec.heads, -1).swapaxes(1, 2)  # (B, J, T, I)
        queries = self.rope(heads, offset).astype(mx.float32)
        products = mx.maximum(queries @ keys.astype(mx.float32).swapaxes(-1, -2), 0)  # (B, J, T, S)
        weights = self.weights(x).astype(mx.float32).swapaxes(1, 2)  # (B, J, T)
        scale = (self.spec.heads * self.spec.head_dim) ** -0.5
        return mx.stop_gradient((products * (weights * scale)[..., None]).sum(axis=1))
