"""Mixtures of experts: many feed-forwards, of which a router picks a few for each token. Imports no mlx.

A mixture has three parts, and a plugin can replace each:

- A *router* spec has `kind = "router"` and the fields `experts` (how many it scores) and `top_k`. Its module is
  called `router(x) -> (indices, weights)`: x (B, T, D); `indices` (B, T, k), unsigned integers below `experts`,
  in any order, no gradient; `weights` (B, T, k), of x's dtype, what each chosen expert's output is multiplied by.
- An *experts* spec has `kind = "experts"` and the field `count`. Its module is called
  `experts(x, indices) -> (B, T, k, D)`: the outputs of the chosen experts, in the order of `indices`. Where the experts
  are divided among ranks, the field `first` has the number of the first that this rank has; outputs of others are zeros.
- `MoE` joins them, and adds a shared expert, a feed-forward that every token goes through:
  Σ_k weights_k · experts(x)_k + shared(x).
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.division import Cut, Division, Share, inputs, outputs
from zoo.recipe.parts import ACTIVATIONS, GATED_TITLES
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divided


@frozen()
class Router(Spec):
    """softmax(W x) over all experts, the `top_k` likeliest kept (Shazeer et al., 2017; Fedus et al., 2021).

    `normalised`: the kept weights sum to one, which is the same as a softmax over the kept logits alone. They are
    then multiplied by `scale`. Parameters: `scores.weight` (E, D) and, with `bias`, `scores.bias` (E,).
    """

    kind, name = "router", "softmax"
    experts: int
    top_k: int
    normalised: bool = True
    bias: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k > self.experts:
            raise RecipeError(f"top_k: {self.top_k} of only {self.experts} experts")

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("scores", dim, self.experts, bias=self.bias),)


@frozen()
class Experts(Spec):
    """`count` gated feed-forwards, down(activation(gate(x)) · up(x)), each matrix stacked over the experts.

    Parameters: `gate.weight` and `up.weight` (E, F, D), `down.weight` (E, D, F), F = `hidden`; with `bias` also
    `gate.bias` and `up.bias` (E, F), `down.bias` (E, D). `first`: the experts are those of one rank, of which the router
    numbers the first so; None: they are all that there are.
    """

    kind, name = "experts", "gated-mlp"
    count: int
    hidden: int
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})
    bias: bool = False
    first: int | None = field(default=None, metadata={"least": 0})

    @property
    def title(self) -> str:
        """SwiGLU experts, where that is what they are."""
        return f"{GATED_TITLES[self.activation]} experts" if self.activation in GATED_TITLES else "experts"

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        """The three stacks, each with all of its matrices in use: how many a token uses, the mixture knows."""
        shapes = (("gate", dim, self.hidden), ("up", dim, self.hidden), ("down", self.hidden, dim))
        return tuple(
            Matrix(name, inputs, outputs, self.count, self.count, bias=self.bias)
            for name, inputs, outputs in shapes
        )

    def divided(self, dim: int, share: Share) -> Division:
        """By the hidden units of every expert, or by experts."""
        if share.whole_experts:
            first, last = kept = share.of("count", self.count)
            cuts = {
                f"{matrix.name}.{name}": Cut(0, (kept,))
                for matrix in self.matrices(dim)
                for name in ("weight", "bias")
            }
            return Division(self.change(count=last - first, first=first), cuts, sums=("",))
        hidden = share.inputs("hidden", self.hidden)
        cuts = outputs("gate", hidden) | outputs("up", hidden) | inputs("down", hidden)
        spec = self.change(hidden=hidden[1] - hidden[0])
        return Division(spec, cuts, once=("down.bias",), sums=("",))


@frozen()
class MoE(Spec):
    """A sparse mixture of experts (Shazeer et al., 2017): the router's choice, weighted, plus a shared expert.

    `shared` is any feed-forward, or None. With `shared_gate` its output is multiplied by σ(w · x), as in Qwen2-MoE;
    w is the parameter `shared_gate.weight` (1, D). With `scales_inputs` the weights multiply what experts read instead of
    what they give, as in LLaMA 4.
    """

    kind, name = "feedforward", "moe"
    router: Spec = field(metadata={"kind": "router"})
    experts: Spec = field(metadata={"kind": "experts"})
    shared: Spec | None = field(default=None, metadata={"kind": "feedforward"})
    shared_gate: bool = False
    scales_inputs: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        router, experts = _contract(self)
        first = getattr(experts, "first", None)
        fits = router.experts == experts.count if first is None else router.experts >= first + experts.count
        if not fits:
            found = experts.count if first is None else f"{experts.count} from {first} on"
            raise RecipeError(f"router: scores {router.experts} experts where there are {found}")
        if self.shared_gate and self.shared is None:
            raise RecipeError("shared_gate: there is no shared expert to gate")

    @property
    def title(self) -> str:
        """A mixture of experts of the experts' kind."""
        return f"mixture of {self.experts.title}"

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("shared_gate", dim, 1),) if self.shared_gate else ()

    def divided(self, dim: int, share: Share) -> Division | None:
        """As its experts are, with one sum for these and the shared one, if all of them give terms of a sum."""
        found = {name: divided(part, dim, share, name) for name, part in self.children() if name != "router"}
        if any(division.sums != (name,) for name, division in found.items()):
            return None
        parts = found.values()
        return Division(
            self.change(**{name: division.spec for name, division in found.items()}),
            {name: cut for division in parts for name, cut in division.cuts.items()},
            once=tuple(name for division in parts for name in division.once),
            sums=("",),
        )

    def flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        return super().flops(dim, keys, prefill) - self._idle(self.experts.flops(dim, keys, prefill))

    def active_parameters(self, dim: int) -> int:
        return super().active_parameters(dim) - self._idle(self.experts.parameters(dim))

    def _idle(self, whole: int) -> int:
        """The share of all experts' `whole` that belongs to those that a token does not use."""
        router, _ = _contract(self)
        return whole * (router.experts - router.top_k) // int(router.experts)


def _contract(mixture: MoE) -> tuple[Any, Any]:
    """The router and the experts, typed for the fields that their contract adds to a `Spec`."""
    return mixture.router, mixture.experts
