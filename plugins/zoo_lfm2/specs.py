"""The spec of LFM2's short convolution. Imports no mlx."""

from typing import ClassVar

from zoo.frozen import frozen
from zoo.recipe import Cut, Division, Matrix, Spec, inputs, outputs


@frozen()
class ShortConvolution(Spec):
    """output(C · convolution(B · h)) over the last `kernel` tokens; B, C and h are projections of each token.

    `channels` is how many are convolved (None: the width). `bias` is of both projections and of the convolution
    (Amini et al., 2025, section 2).
    """

    kind, name = "mixer", "short-convolution"
    recurrent: ClassVar[bool] = True
    kernel: int = 3
    bias: bool = False
    channels: int | None = None

    @property
    def title(self):
        """What it is called, with its gates."""
        return "gated short convolution"

    def own_parameters(self, dim):
        return super().own_parameters(dim) + (self.channels or dim) * (self.kernel + self.bias)

    def matrices(self, dim):
        channels = self.channels or dim
        return Matrix("input", dim, 3 * channels, bias=self.bias), Matrix(
            "output", channels, dim, bias=self.bias
        )

    def state_size(self, dim):
        return (self.channels or dim) * (self.kernel - 1)

    def divided(self, dim, share):
        """By channels, which do not mix before the output."""
        whole = self.channels or dim
        first, last = share.inputs("channels", whole)
        thirds = ((first + part * whole, last + part * whole) for part in range(3))
        convolution = {f"convolution.{name}": Cut(-1, ((first, last),)) for name in ("weight", "bias")}
        return Division(
            self.change(channels=last - first),
            outputs("input", *thirds) | convolution | inputs("output", (first, last)),
            once=("output.bias",),
            sums=("",),
        )
