"""The parts that several families share: norms, positions, feed-forwards, layers. Imports no mlx."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.division import Cut, Division, Share, inputs, outputs
from zoo.recipe.spec import Matrix, Spec

# What papers call the activations.
ACTIVATION_TITLES = {
    "relu": "ReLU",
    "relu2": "squared ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "quick_gelu": "quick GELU",
    "silu": "SiLU",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
ACTIVATIONS = tuple(ACTIVATION_TITLES)
GATED_TITLES = {"silu": "SwiGLU", "gelu": "GEGLU", "gelu_tanh": "GEGLU", "relu": "ReGLU", "sigmoid": "GLU"}


@frozen()
class LayerNorm(Spec):
    """(x − mean) / √(variance + eps) · weight + bias, over the features of one token (Ba et al., 2016)."""

    kind, name = "norm", "layernorm"
    eps: float = field(default=1e-5, metadata={"least": 0})
    bias: bool = True

    def own_parameters(self, dim: int) -> int:
        return 2 * dim if self.bias else dim


@frozen()
class RMSNorm(Spec):
    """x / √(mean(x²) + eps) · weight: no centring (Zhang and Sennrich, 2019)."""

    kind, name = "norm", "rmsnorm"
    eps: float = field(default=1e-6, metadata={"least": 0})

    def own_parameters(self, dim: int) -> int:
        return dim


@frozen()
class PlainRMSNorm(RMSNorm):
    """RMSNorm without a weight: x / √(mean(x²) + eps)."""

    kind, name = "norm", "plain-rmsnorm"

    @property
    def title(self) -> str:
        """The norm's name, with what it lacks."""
        return "RMSNorm without a weight"

    def own_parameters(self, dim: int) -> int:
        return 0


@frozen(kw_only=True)
class JointRMSNorm(RMSNorm):
    """RMSNorm of all `heads` of the queries, or of the keys, together: one mean for all of them (OLMo 2, OLMoE).

    As `query_norm` or `key_norm` of attention, where an `RMSNorm` normalises each head.
    """

    kind, name = "norm", "joint-rmsnorm"
    heads: int

    @property
    def title(self) -> str:
        """The norm's name and the heads that it covers."""
        return "RMSNorm over all heads"

    def own_parameters(self, dim: int) -> int:
        return self.heads * dim

    def divided(self, dim: int, share: Share) -> Division | None:
        """By heads, of which all ranks compute one mean."""
        if share.heads is None:
            return None
        first, last = share.heads
        # A rank more than there are heads of keys has one of them too, and so do all.
        part = JointRMSNormPart(eps=self.eps, heads=last - first, whole=max(self.heads, share.ranks))
        return Division(part, {"weight": Cut(0, ((first * dim, last * dim),))})


@frozen(kw_only=True)
class JointRMSNormPart(JointRMSNorm):
    """The `heads` of a `JointRMSNorm` that a rank has, of `whole` on all ranks together."""

    kind, name = "norm", "joint-rmsnorm-part"
    whole: int


class AddedPositions(Spec):
    """Positions that are added to the embedding of a token; they cannot turn queries and keys."""


@frozen()
class LearnedPositions(AddedPositions):
    """One learned vector a position, added to the token's (Gehring et al., 2017; GPT, BERT).

    `offset` rows at the head of the table belong to no position (BART).
    """

    kind, name = "position", "learned"
    context: int
    offset: int = field(default=0, metadata={"least": 0})

    def own_parameters(self, dim: int) -> int:
        return (self.offset + self.context) * dim

    def active_parameters(self, dim: int) -> int:
        return 0  # one row is read


@frozen()
class SinusoidalPositions(AddedPositions):
    """sin and cos of position · frequency k, added to the token's vector (Vaswani et al., 2017, section 3.5).

    Frequency k is theta^(−2k/d), or theta^(−k/(d/2 − 1)), which ends at 1/theta, when `inclusive` (tensor2tensor,
    fairseq). `interleaved` puts sin and cos side by side, as the paper does; otherwise all sines come first. The
    first token's position is `offset`.
    """

    kind, name = "position", "sinusoidal"
    theta: float = field(default=10000.0, metadata={"above": 1})
    interleaved: bool = True
    inclusive: bool = False
    offset: int = field(default=0, metadata={"least": 0})

    def check_width(self, dim: int) -> None:
        if self.inclusive and dim < 3:
            raise RecipeError(f"inclusive: needs more than two features, got {dim}")


@frozen()
class MLP(Spec):
    """down(activation(up(x))): two projections, D → hidden → D (Vaswani et al., 2017)."""

    kind, name = "feedforward", "mlp"
    hidden: int
    activation: str = field(default="gelu", metadata={"choices": ACTIVATIONS})
    bias: bool = True
    projections: ClassVar[int] = 2

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        inner = ("gate", "up")[-(self.projections - 1) :]
        up = (Matrix(name, dim, self.hidden, bias=self.bias) for name in inner)
        return (*up, Matrix("down", self.hidden, dim, bias=self.bias))

    def divided(self, dim: int, share: Share) -> Division:
        """By hidden units."""
        hidden = share.inputs("hidden", self.hidden)
        cuts = inputs("down", hidden)
        for name in ("gate", "up")[-(self.projections - 1) :]:
            cuts |= outputs(name, hidden)
        spec = self.change(hidden=hidden[1] - hidden[0])
        return Division(spec, cuts, once=("down.bias",), sums=("",))

    @property
    def title(self) -> str:
        """SwiGLU or GEGLU where it is gated by those, else the activation's name."""
        if self.projections == 2:
            return f"{ACTIVATION_TITLES[self.activation]} feed-forward"
        return GATED_TITLES.get(
            self.activation, f"feed-forward gated by {ACTIVATION_TITLES[self.activation]}"
        )


@frozen()
class GatedMLP(MLP):
    """down(activation(gate(x)) · up(x)); with silu it is SwiGLU (Shazeer, 2020)."""

    kind, name = "feedforward", "gated-mlp"
    divided = MLP.divided
    activation: str = field(default="silu", metadata={"choices": ACTIVATIONS})
    bias: bool = False
    projections: ClassVar[int] = 3


@frozen()
class Layer(Spec):
    """A mixer and a feed-forward, each with a residual sum and a norm (None: without one).

    `placement` "pre": x + f(norm(x)) (GPT-2 on). "post": norm(x + f(x)) (2017, GPT-1, BERT). With `parallel` one sum
    takes both, x + mixer(mixer_norm(x)) + feedforward(feedforward_norm(x)) (GPT-NeoX); where `feedforward_norm` is
    None, the feed-forward reads mixer_norm(x) too (GPT-J, Cohere). What a sum adds to x is multiplied by
    `residual_scale` (Granite).
    """

    kind, name = "layer", "residual"
    mixer: Spec = field(metadata={"kind": "mixer"})
    feedforward: Spec = field(metadata={"kind": "feedforward"})
    mixer_norm: Spec | None = field(metadata={"kind": "norm"})
    feedforward_norm: Spec | None = field(metadata={"kind": "norm"})
    placement: str = "pre"
    parallel: bool = False
    residual_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.placement not in ("pre", "post"):
            raise RecipeError(f"placement: {self.placement!r} is neither 'pre' nor 'post'")
        if self.parallel and self.placement != "pre":
            raise RecipeError("placement: must be 'pre' in a parallel layer, which has one sum")

    @property
    def norm_placement(self) -> str:
        """As `placement` says; of a parallel layer with one norm, that it stands before both parts."""
        if self.parallel and self.mixer_norm is not None and self.feedforward_norm is None:
            return "once before both parts"
        return {"pre": "before each part", "post": "after each sum"}[self.placement]

    @property
    def by_part(self) -> bool:
        return self.feedforward.remembers

    @property
    def gives(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.mixer.gives, *self.feedforward.gives)))

    @property
    def takes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.mixer.takes, *self.feedforward.takes)))


@frozen(kw_only=True)
class CrossLayer(Layer):
    """A layer of a decoder with cross-attention: mixer, then `cross` over the encoder's output, then feed-forward."""

    kind, name = "layer", "cross"
    by_part, gives, takes = False, (), ()
    cross: Spec = field(metadata={"kind": "cross"})
    cross_norm: Spec = field(metadata={"kind": "norm"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.feedforward.remembers:
            raise RecipeError(
                f"feedforward: {self.feedforward.block()} has a cache, which {self.block()} has no room for"
            )
        if self.parallel:
            raise RecipeError(
                "parallel: cross-attention reads what the mixer gives: the parts are not parallel"
            )
