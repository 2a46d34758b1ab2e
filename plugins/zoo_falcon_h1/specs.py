"""The specs of Falcon-H1's layer and its scaled parts. Imports no mlx."""

from dataclasses import field

from zoo.frozen import frozen
from zoo.recipe import GatedMLP, Spec
from zoo_mamba2 import StateSpace


@frozen()
class ScaledStateSpace(StateSpace):
    """Mamba-2's mixer; what it projects is multiplied by `scales`: of gate, values, B, C and dt.

    The gate comes after the norm when `norm_first`, and alone when there is no norm.
    """

    name = "scaled-state-space"
    scales: tuple[float, ...] = (1.0,) * 5
    norm_first: bool = False


@frozen()
class ScaledMLP(GatedMLP):
    """down(activation(gate(x) · scales₀) · up(x)) · scales₁."""

    name = "scaled-gated-mlp"
    divided = GatedMLP.divided
    scales: tuple[float, ...] = (1.0, 1.0)


@frozen()
class ParallelMixers(Spec):
    """h = norm(x): x + mixer(h) + memory(h), then a feed-forward. Each mixer's scales multiply its input and its output."""

    kind, name = "layer", "parallel-mixers"
    by_part = True  # masks and caches come by the names of the parts, "mixer" and "memory"
    mixer_norm: Spec = field(metadata={"kind": "norm"})
    mixer: Spec = field(metadata={"kind": "mixer"})
    memory: Spec = field(metadata={"kind": "mixer"})
    feedforward_norm: Spec = field(metadata={"kind": "norm"})
    feedforward: Spec = field(metadata={"kind": "feedforward"})
    mixer_scales: tuple[float, ...] = (1.0, 1.0)
    memory_scales: tuple[float, ...] = (1.0, 1.0)

    @property
    def title(self):
        """What a layer of this kind is called."""
        return "layer of two mixers"

    @property
    def norm_placement(self):
        """As in a Pre-LN layer."""
        return "before each part"
