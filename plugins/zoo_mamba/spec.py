"""The specs of Mamba's mixer and layer. Imports no mlx."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.errors import RecipeError
from zoo.recipe import ACTIVATIONS, Matrix, Spec

CHUNK = 64  # tokens read one after the other: each such step works on all chunks
SEGMENT = 512  # tokens scanned at once: bounds the memory of what chunks keep, two states a token


@dataclass(frozen=True)
class SelectiveStateSpace(Spec):
    """A convolution over the last `kernel` tokens, then a state of `state` numbers for each of `hidden` channels.

    dt, B and C, which say how much of the state stays, what enters it and what is read from it, are projections of the
    token (Gu and Dao, 2023, section 3); `dt_rank` is the rank of dt's. `bias` is of the input and output projections.
    Parameters besides those: `x_proj` (dt, B and C), `dt_proj`, `A_log` (N, E), `D` (E,).
    """

    kind, name = "mixer", "selective-state-space"
    recurrent: ClassVar[bool] = True
    chunks: ClassVar[tuple[int, ...]] = (CHUNK, SEGMENT)
    hidden: int
    dt_rank: int
    state: int = 16
    kernel: int = 4
    activation: str = "silu"
    bias: bool = False
    kernel_bias: bool = True

    def __post_init__(self):
        super().__post_init__()
        if self.activation not in ACTIVATIONS:
            raise RecipeError(f"activation: {self.activation!r} is not one of {', '.join(ACTIVATIONS)}")

    def own_parameters(self, dim):
        projections = 3 * dim * self.hidden + (2 * self.hidden + dim) * self.bias
        convolution = self.hidden * (self.kernel + self.kernel_bias)
        selection = self.hidden * (self.dt_rank + 2 * self.state) + (self.dt_rank + 1) * self.hidden
        return projections + convolution + selection + self.hidden * (self.state + 1)

    def matrices(self, dim):
        return (
            Matrix("input", dim, 2 * self.hidden),
            Matrix("x_proj", self.hidden, self.dt_rank + 2 * self.state),
            Matrix("dt_proj", self.dt_rank, self.hidden),
            Matrix("output", self.hidden, dim),
        )

    def state_size(self, dim):
        return self.hidden * (self.kernel - 1 + self.state)


@dataclass(frozen=True)
class MixerLayer(Spec):
    """x + mixer(norm(x)), and nothing else. `float32_residual`: the sum is kept in float32 between layers."""

    kind, name = "layer", "mixer-only"
    mixer: Spec
    mixer_norm: Spec
    float32_residual: bool = False

    @property
    def widens(self):
        """A sum in float32 is wider than what enters the first layer."""
        return self.float32_residual

    @property
    def norm_placement(self):
        """Before the mixer, the only part."""
        return "before each part"
