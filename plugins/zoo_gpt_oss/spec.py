"""The specs of gpt-oss's own blocks: attention with sinks, experts with a clipped gate. Imports no mlx."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.errors import RecipeError
from zoo.recipe import Attention, Experts


@dataclass(frozen=True)
class SinkAttention(Attention):
    """Attention whose softmax has one more column, a learned score a head, which holds no value.

    A head that finds nothing puts its weight there (OpenAI, 2025; Xiao et al., 2023). Parameter: `sinks` (H,).
    """

    kind, name = "mixer", "sink-attention"

    def own_parameters(self, dim: int) -> int:
        return super().own_parameters(dim) + self.heads

    @property
    def title(self) -> str:
        """The kind of attention, with sinks."""
        return f"{super().title} with sinks"


@dataclass(frozen=True)
class ClippedExperts(Experts):
    """Experts joined by (up + 1) · gate · σ(alpha · gate), gate ≤ `limit` and −`limit` ≤ up ≤ `limit`."""

    kind, name = "experts", "clipped-gated-mlp"
    limit: float = 7.0
    alpha: float = 1.702

    @property
    def title(self) -> str:
        """Their gate is not any activation's alone."""
        return "clipped gated experts"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit <= 0:
            raise RecipeError(f"limit: must be positive, got {self.limit}")
