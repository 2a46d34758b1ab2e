"""The specs of Gemma 4's own blocks. Imports no mlx."""

from dataclasses import field, replace

from zoo.frozen import frozen
from zoo.recipe import KeyValueSource, MoE, Router, Spec
from zoo_gemma import SandwichLayer


@frozen()
class ProportionalScaling(Spec):
    """Only the first `rotated` pairs of a head are rotated, at the frequencies that they have among all pairs."""

    kind, name = "rope-scaling", "proportional"
    rotated: int


@frozen()
class ValueNormAttention(KeyValueSource):
    """Attention whose values are normalised without a gain.

    With `keys_as_values`, the values are the keys before their norm and rotation.
    """

    kind, name = "mixer", "value-norm-attention"
    eps: float = 1e-6
    keys_as_values: bool = False

    @property
    def title(self):
        """The title of the attention with "normalised values" added."""
        return f"{super().title} with normalised values"

    def matrices(self, dim):
        return tuple(m for m in super().matrices(dim) if not (self.keys_as_values and m.name == "value"))

    def divided(self, dim, share):
        """By heads."""
        division = super().divided(dim, share)
        if not self.keys_as_values:
            return division
        cuts = {path: cut for path, cut in division.cuts.items() if not path.startswith("value.")}
        return replace(division, cuts=cuts)


@frozen(kw_only=True)
class ScaledRouter(Router):
    """A router that normalises what it reads, and multiplies the weights of experts by learned numbers.

    It scores x / √(mean(x²) + eps) · gain / √D. Parameters beside the scores': `gain` (D,), `expert_scale` (E,).
    """

    kind, name = "router", "scaled-softmax"
    eps: float = 1e-6

    def own_parameters(self, dim):
        return super().own_parameters(dim) + dim + self.experts


@frozen(kw_only=True)
class NormedMoE(MoE):
    """A mixture whose experts read the normalised input, and whose router reads it as it is."""

    kind, name = "feedforward", "normed-moe"
    experts_norm: Spec = field(metadata={"kind": "norm"})


@frozen()
class ScaledSandwichLayer(SandwichLayer):
    """A layer with norms on both sides of each part, whose output is multiplied by a learned number.

    With a `mixture`, the second sum adds outer(output(feedforward(norm(x))) + mixture_output(mixture(x))), where outer is
    `feedforward_output_norm`, output `dense_output_norm` and mixture_output `mixture_output_norm`. With `layer_input`,
    a third sum adds what the layer's own input says, normalised by `layer_input_norm`.

    Parameters: `scalar` (1,).
    """

    kind, name = "layer", "scaled-sandwich"
    layer_input: Spec | None = None
    layer_input_norm: Spec | None = None
    mixture: Spec | None = field(default=None, metadata={"kind": "feedforward"})
    dense_output_norm: Spec | None = None
    mixture_output_norm: Spec | None = None

    @property
    def gives(self):
        """The names of values that the mixer hands on to later layers."""
        return self.mixer.gives

    @property
    def takes(self):
        """The names of values that the mixer and the third residual sum read."""
        return self.mixer.takes + (self.layer_input.takes if self.layer_input else ())

    def own_parameters(self, dim):
        return super().own_parameters(dim) + 1
