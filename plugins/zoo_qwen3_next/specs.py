"""The specs of Qwen3-Next's mixers. Imports no mlx."""

from dataclasses import field, replace
from typing import ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe import ACTIVATIONS, Attention, Cut, Division, Matrix, Spec, inputs, outputs

CHUNK = 64  # tokens that are read by one product of matrices: of the computation, not of the model


@frozen()
class GatedDeltaNet(Spec):
    """A convolution over the last `kernel` tokens, then a state (`key_dim`, `value_dim`) for each of `heads` value heads.

    A token's key reads the state and writes the difference between the token's value and what it read, times beta; before
    that the state fades by alpha (Yang et al., 2024, section 3.1). The heads of one of `key_heads` share queries and keys.
    `q`, `k`, `v` and the gate `z`, beta and alpha are projections of each token, by the names of the authors' code. Parameters
    besides those: `dt_bias` and `A_log` (H,), which alpha is made with, and `gain` (V,), the norm's.
    """

    kind, name = "mixer", "gated-delta-net"
    recurrent: ClassVar[bool] = True
    chunks: ClassVar[tuple[int, ...]] = (CHUNK,)
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    kernel: int = 4
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})
    eps: float = 1e-6

    def __post_init__(self):
        super().__post_init__()
        if self.heads % self.key_heads:
            raise RecipeError(f"key_heads: {self.key_heads} does not divide heads, {self.heads}")

    @property
    def title(self):
        """The name of its paper."""
        return "gated DeltaNet"

    @property
    def group_values(self):
        """The width of the values of one key head."""
        return self.heads // self.key_heads * self.value_dim

    @property
    def channels(self):
        """How many channels are convolved: queries, keys and values."""
        return self.key_heads * (2 * self.key_dim + self.group_values)

    def own_parameters(self, dim):
        return super().own_parameters(dim) + self.channels * self.kernel + 2 * self.heads + self.value_dim

    def matrices(self, dim):
        keys, values = self.key_heads * self.key_dim, self.heads * self.value_dim
        widths = dict(q=keys, k=keys, v=values, z=values, beta=self.heads, alpha=self.heads)
        return *(Matrix(name, dim, width) for name, width in widths.items()), Matrix("output", values, dim)

    def state_size(self, dim):
        return self.channels * (self.kernel - 1) + self.heads * self.key_dim * self.value_dim

    def divided(self, dim, share):
        """By key heads, with the value heads of each."""
        each, whole = self.heads // self.key_heads, self.key_heads * self.key_dim
        first, last = share.inputs("key_heads", self.key_heads, self.group_values)
        keys, values = ((first * width, last * width) for width in (self.key_dim, self.group_values))
        heads, part = (
            (first * each, last * each),
            self.change(key_heads=last - first, heads=(last - first) * each),
        )
        channels = (
            keys,
            *(
                (start + before, end + before)
                for (start, end), before in ((keys, whole), (values, 2 * whole))
            ),
        )
        ranges = dict(q=keys, k=keys, v=values, z=values, beta=heads, alpha=heads)
        cuts = {name: cut for layer, own in ranges.items() for name, cut in outputs(layer, own).items()}
        cuts |= {
            "convolution.weight": Cut(-1, channels),
            **{name: Cut(0, (heads,)) for name in ("dt_bias", "A_log")},
        }
        return Division(part, cuts | inputs("output", values), sums=("",))


@frozen()
class GatedAttention(Attention):
    """Attention whose heads are multiplied, number by number, by σ(gate(x)) before the output (Qiu et al., 2025)."""

    name = "gated-attention"

    @property
    def title(self):
        """The kind of attention, with its gate."""
        return f"gated {super().title}"

    def matrices(self, dim):
        *rest, output = super().matrices(dim)
        return *rest, Matrix("gate", dim, output.inputs, bias=self.bias), output

    def divided(self, dim, share):
        """By heads, the gate's like the queries'."""
        division, width = super().divided(dim, share), self.head_width(dim)
        first, last = division.heads[""]
        return replace(division, cuts={**division.cuts, **outputs("gate", (first * width, last * width))})
