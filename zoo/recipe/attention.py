"""Self- and cross-attention. Imports no mlx."""

from __future__ import annotations

from dataclasses import field

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.parts import AddedPositions
from zoo.recipe.rope import QueryScale
from zoo.recipe.spec import Matrix, Spec
from zoo.recipe.tensor_parallel import divide_heads


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

    def score_flops(self, dim: int, keys: int) -> int:
        """The operations of one query's scores and of the sum of values that they weigh, over those keys it sees."""
        seen = keys if self.attention_window is None else min(keys, self.attention_window)
        return 4 * self.heads * self.head_width(dim) * seen


@frozen()
class Attention(MultiHead):
    """Multi-head attention, grouped when `kv_heads` < `heads` (Vaswani et al., 2017; Ainslie et al., 2023).

    `bias` is of the query, key and value projections, `output_bias` of the output's. `query_norm` and
    `key_norm` normalise each head; either may stand alone. `window`: a token sees itself and the `window` − 1 before it; in
    an encoder itself and `window` // 2 on each side (ModernBERT). `chunked`: it sees instead those of its own chunk of
    `window` tokens up to itself (LLaMA 4). Scores are multiplied by `scale` (None: head_dim^−½), rotated queries by the
    `query_scale` of their positions.
    """

    kind, name = "mixer", "attention"
    divided = divide_heads
    rope: Spec | None = field(default=None, metadata={"kind": "position"})
    query_norm: Spec | None = field(default=None, metadata={"kind": "norm"})
    key_norm: Spec | None = field(default=None, metadata={"kind": "norm"})
    window: int | None = None
    scale: float | None = field(default=None, metadata={"above": 0})
    query_scale: Spec | None = field(default=None, metadata={"kind": "position"})
    chunked: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.rope, AddedPositions):
            raise RecipeError(
                f"rope: {self.rope.block()} is added to embeddings and turns no queries and keys"
            )
        if isinstance(self.rope, QueryScale):
            raise RecipeError("rope: position/query-scale is a query_scale, and turns no queries and keys")
        if self.query_scale is not None and not isinstance(self.query_scale, QueryScale):
            raise RecipeError(f"query_scale: {self.query_scale.block()} does not multiply queries")
        if self.chunked and self.window is None:
            raise RecipeError("chunked: needs a window, the number of tokens of a chunk")

    def width(self, part: str, dim: int) -> int:
        return self.head_width(dim)

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


@frozen()
class CrossAttention(MultiHead):
    """Attention whose queries come from the target, keys and values from the encoder's output.

    Vaswani et al., 2017, section 3.2.3. The fields are those of `Attention`.
    """

    kind, name = "cross", "attention"
    divided = divide_heads
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
