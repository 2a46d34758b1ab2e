"""Self- and cross-attention, and how their heads are divided among ranks. Imports no mlx."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, replace
from functools import partial

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.division import INSTEAD, Division, Range, Share, inputs, outputs
from zoo.recipe.parts import AddedPositions, JointRMSNorm
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divided

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
        """Divide by heads. With more ranks than key/value heads, several ranks have the same keys and values."""
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
    `key_norm` normalise each head; either may stand alone. `window`: a token sees itself and the `window` − 1 before it; in
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

    def width(self, part: str, dim: int) -> int:
        return self.head_width(dim)

    def divided_heads(self, dim: int, share: Share) -> tuple[Range, Range]:
        """Divide by whole groups, or by single heads where the largest rank then has fewer weights.

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
        """Divide by heads. A norm over the queries or keys of all heads is divided with them."""
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
