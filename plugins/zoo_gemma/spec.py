"""The specs of Gemma 2's blocks. Imports no mlx."""

from dataclasses import dataclass

from zoo.errors import RecipeError
from zoo.recipe import Attention, Head, RMSNorm, Spec


@dataclass(frozen=True)
class OffsetRMSNorm(RMSNorm):
    """Its weight w is the distance of a factor from one, so that decay pulls towards one: x / √(mean(x²) + eps) · (1 + w)."""

    kind, name = "norm", "offset-rmsnorm"

    @property
    def title(self) -> str:
        """RMSNorm, with what is learned."""
        return "RMSNorm (1 + w)"


@dataclass(frozen=True)
class SandwichLayer(Spec):
    """x + norm(f(norm(x))), for the mixer and then for the feed-forward: a norm on both sides of each."""

    kind, name = "layer", "sandwich"
    mixer_norm: Spec
    mixer: Spec
    mixer_output_norm: Spec
    feedforward_norm: Spec
    feedforward: Spec
    feedforward_output_norm: Spec

    @property
    def norm_placement(self) -> str:
        """On both sides."""
        return "before and after each part"


@dataclass(frozen=True)
class CappedAttention(Attention):
    """Attention with soft-capped scores: cap · tanh(score / cap) before the softmax."""

    kind, name = "mixer", "capped-attention"
    cap: float = 50.0

    @property
    def title(self) -> str:
        """The kind of attention, with capped scores."""
        return f"{super().title} with capped scores"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cap(self.cap)


@dataclass(frozen=True)
class CappedHead(Head):
    """A head with soft-capped logits: cap · tanh(logit / cap)."""

    kind, name = "head", "capped-logits"
    cap: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cap(self.cap)


def check_cap(cap: float) -> None:
    """RecipeError unless a cap is positive."""
    if cap <= 0:
        raise RecipeError(f"cap: must be positive, got {cap}")
