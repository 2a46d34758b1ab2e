"""The parts that several families share: norms, positions, attention, feed-forwards, layers. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, replace
from functools import partial
from typing import ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.division import INSTEAD, Cut, Division, Range, Share, inputs, outputs
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divided

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


Divide = Callable[[Share], tuple[Range, Range]]  # the heads that a rank has, and their key/value heads


@frozen()
class MultiHead(Spec):
    """The heads and projections of self- and cross-attention.

    Heads are grouped when `kv_heads` < `heads` (Ainslie et al., 2023). `bias` is of the query, key and value
    projections, `output_bias` of the output's.
    """

    heads: int
    kv_heads: int | None = None
    head_dim: int | None = None
    bias: bool = False
    output_bias: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_groups()

    def check_groups(self) -> None:
        """RecipeError unless the heads are groups, each with keys and values of its own."""
        if self.heads % (self.kv_heads or self.heads):
            raise RecipeError(f"kv_heads: {self.kv_heads} does not divide heads, {self.heads}")

    def check_width(self, dim: int) -> None:
        self.head_width(dim)

    def head_width(self, dim: int) -> int:
        """The width of one head."""
        if self.head_dim is None and dim % self.heads:
            raise RecipeError(f"heads: {self.heads} does not divide the width, {dim}")
        return self.head_dim or dim // self.heads

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        queries = self.heads * self.head_width(dim)
        keys = (self.kv_heads or self.heads) * self.head_width(dim)
        shapes = (("query", queries), ("key", keys), ("value", keys))
        inner = (Matrix(name, dim, outputs, bias=self.bias) for name, outputs in shapes)
        return (*inner, Matrix("output", queries, dim, bias=self.output_bias))

    def divided_heads(self, dim: int, share: Share) -> tuple[Range, Range]:
        """The heads that a rank has, and the key/value heads that these read."""
        groups, ranks = self.kv_heads or self.heads, share.ranks
        each, width = self.heads // groups, self.head_width(dim)  # heads that share keys and values
        if groups >= ranks:
            kept = share.inputs("kv_heads" if self.kv_heads else "heads", groups, each * width)
            return (kept[0] * each, kept[1] * each), kept
        count = self.heads // ranks
        if self.heads % ranks or ranks % groups:
            raise RecipeError(
                f"heads: {self.heads} with {groups} of keys and values cannot be divided among {ranks} ranks; {INSTEAD}"
            )
        heads = share.rank * count, (share.rank + 1) * count
        share.check_inputs("heads", (heads[0] * width, heads[1] * width))
        return heads, (heads[0] // each, heads[0] // each + 1)

    def divided(self, dim: int, share: Share) -> Division:
        """By heads. Where the ranks are more than the key/value heads, several ranks have the same keys and values."""
        (heads, kept), width = self.divided_heads(dim, share), self.head_width(dim)
        queries, keys = ((first * width, last * width) for first, last in (heads, kept))
        return Division(
            self.with_heads(heads, kept, width),
            outputs("query", queries)
            | outputs("key", keys)
            | outputs("value", keys)
            | inputs("output", queries),
            once=("output.bias",),
            sums=("",),
            heads={"": heads},
        )

    def with_heads(self, heads: Range, kept: Range, width: int) -> Spec:
        """The same with some of the heads, and of the key/value heads, each of that width."""
        return self.change(heads=heads[1] - heads[0], kv_heads=kept[1] - kept[0], head_dim=width)

    def score_flops(self, dim: int, keys: int) -> int:
        """The operations of one query's scores and of the sum of values that they weigh, over those keys it sees."""
        seen = keys if self.attention_window is None else min(keys, self.attention_window)
        return 4 * self.heads * self.head_width(dim) * seen


@frozen()
class Attention(MultiHead):
    """Multi-head attention, grouped when `kv_heads` < `heads` (Vaswani et al., 2017; Ainslie et al., 2023).

    `bias` is of the query, key and value projections, `output_bias` of the output's. `query_norm` and
    `key_norm` normalise each head. `window`: a token sees itself and the `window` − 1 before it; in
    an encoder itself and `window` // 2 on each side (ModernBERT). Scores are multiplied by `scale` (None:
    head_dim^−½).
    """

    kind, name = "mixer", "attention"
    rope: Spec | None = field(default=None, metadata={"kind": "position"})
    query_norm: Spec | None = field(default=None, metadata={"kind": "norm"})
    key_norm: Spec | None = field(default=None, metadata={"kind": "norm"})
    window: int | None = None
    scale: float | None = field(default=None, metadata={"above": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rope, AddedPositions):
            raise RecipeError(
                f"rope: {self.rope.block()} is added to embeddings and turns no queries and keys"
            )
        if (self.query_norm is None) != (self.key_norm is None):
            here, there = ("key_norm", "query_norm") if self.key_norm is None else ("query_norm", "key_norm")
            raise RecipeError(
                f"{here}: is missing where there is a {there}: queries and keys are normalised alike"
            )

    def width(self, part: str, dim: int) -> int:
        return self.head_width(dim)

    def divided_heads(self, dim: int, share: Share) -> tuple[Range, Range]:
        """By whole groups; by single heads where the largest rank then has fewer weights.

        Nine heads in three groups are 6 and 3 of two ranks by groups, and 5 and 4 by heads; both ranks then have the keys
        and values of the group in the middle. Modules of subclasses know whole groups alone.
        """
        heads, kept = super().divided_heads(dim, share)
        if type(self) is not Attention or isinstance(self.key_norm, JointRMSNorm):
            return heads, kept
        each, groups = self.heads // (self.kv_heads or self.heads), self.kv_heads or self.heads
        if groups < share.ranks or groups % share.ranks == 0:
            return heads, kept

        def by_heads(share: Share) -> tuple[Range, Range]:
            first, last = share.inputs("heads", self.heads, self.head_width(dim))
            return (first, last), (first // each, -(-last // each))

        def most(divide: Divide) -> int:  # heads of queries and of keys on one rank
            every = (divide(replace(share, rank=rank)) for rank in range(share.ranks))
            return max(sum(last - first for first, last in ranges) for ranges in every)

        ways: list[Divide] = [partial(super().divided_heads, dim), by_heads]
        return min(ways, key=most)(share)

    def with_heads(self, heads: Range, kept: Range, width: int) -> Spec:
        group = self.heads // (self.kv_heads or self.heads)
        if kept[1] - kept[0] == 1 or not any(end % group for end in heads):
            return super().with_heads(heads, kept, width)
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        known |= dict(heads=heads[1] - heads[0], kv_heads=kept[1] - kept[0], head_dim=width)
        return AttentionPart(**known, group=group, first=heads[0] % group)

    def divided(self, dim: int, share: Share) -> Division:
        """By heads, and norms of all heads together like them."""
        division, width = super().divided(dim, share), self.head_width(dim)
        for name, heads in zip(("query_norm", "key_norm"), self.divided_heads(dim, share), strict=True):
            norm = getattr(self, name)
            own = norm and divided(norm, width, replace(share, heads=heads), name)
            if own and own.cuts:
                spec = division.spec.change(**{name: own.spec})
                division = replace(division, spec=spec, cuts={**division.cuts, **own.cuts})
        return division

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        return super().own_flops(dim, keys, prefill) + self.score_flops(dim, keys)

    @property
    def title(self) -> str:
        """Multi-head, grouped-query or multi-query attention, by its numbers of heads."""
        groups = self.kv_heads or self.heads
        if groups == self.heads:
            return "multi-head attention"
        return "multi-query attention" if groups == 1 else "grouped-query attention"

    def kv_cache_size(self, dim: int) -> int:
        return 2 * (self.kv_heads or self.heads) * self.head_width(dim)

    def kv_widths(self, dim: int) -> tuple[int, int] | None:
        return self.head_width(dim), self.head_width(dim)


@frozen(kw_only=True)
class AttentionPart(Attention):
    """The `heads` of an `Attention` that a rank has, where other ranks have some heads of its first or last group.

    `group` heads share keys and values. Of the first group, `first` heads are on the rank before.
    """

    kind, name = "mixer", "attention-part"
    group: int
    first: int = field(default=0, metadata={"least": 0})

    def check_groups(self) -> None:
        groups = -(-(self.first + self.heads) // self.group)
        if self.first >= self.group or groups < 2 or self.kv_heads != groups:
            raise RecipeError(
                f"kv_heads: {self.kv_heads}, but {self.heads} heads after {self.first} are in {groups} groups of {self.group}"
            )


@frozen()
class CrossAttention(MultiHead):
    """Attention whose queries come from the target, keys and values from the encoder's output.

    Vaswani et al., 2017, section 3.2.3. The fields are those of `Attention`.
    """

    kind, name = "cross", "attention"
    divided = MultiHead.divided
    scale: float | None = field(default=None, metadata={"above": 0})

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """Reading the source makes its keys and values; writing the target uses them."""
        query, key, value, output = self.matrices(dim)
        if prefill:
            return key.flops + value.flops
        return query.flops + output.flops + self.score_flops(dim, keys)

    @property
    def title(self) -> str:
        """Cross-attention, whatever its numbers of heads."""
        return "cross-attention"


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
