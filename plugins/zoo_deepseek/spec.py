"""The specs of DeepSeek-V3's blocks, and the fact of the memory that its attention saves. Imports no mlx."""

from typing import ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe import Cut, Division, Layer, Matrix, Share, Spec, inputs, outputs


@frozen()
class Indexer(Spec):
    """Lightning indexer: the `top_k` tokens of the largest Σ w · ReLU(q · k) over its own small heads (DeepSeek-V3.2, 2025).

    All `heads` share one key of `head_dim` numbers a token, normalised by `key_norm`, which is cached. Queries are
    made of the attention's latent of queries, of `query_rank` numbers, and the weights w of x. `rope` turns some
    numbers of queries and keys.
    """

    kind, name = "indexer", "lightning"
    heads: int
    head_dim: int
    top_k: int
    query_rank: int
    key_norm: Spec
    rope: Spec

    def width(self, part: str, dim: int) -> int:
        return self.head_dim

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (
            Matrix("query", self.query_rank, self.heads * self.head_dim),
            Matrix("key", dim, self.head_dim),
            Matrix("weights", dim, self.heads),
        )

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """Each head compares its query with all keys."""
        return super().own_flops(dim, keys, prefill) + 2 * self.heads * self.head_dim * keys

    def kv_cache_size(self, dim: int) -> int:
        return self.head_dim

    @property
    def title(self) -> str:
        """The paper's name."""
        return "lightning indexer"


@frozen()
class LatentAttention(Spec):
    """Multi-head latent attention: keys and values are projections of one short vector a token (DeepSeek-V2, 2024).

    That vector, `kv_rank` numbers, and one rotated key of `rope_dim` numbers that all heads share (not rotated where `rope` is None), are all that is
    cached. A head's queries and keys have `nope_dim` numbers without positions and `rope_dim` rotated ones; its
    values have `value_dim`. Queries come from a short vector too, of `query_rank` numbers (None: from x itself).
    `bias` is of the projections from and to the model's width. Scores are multiplied by `scale`
    (None: (nope_dim + rope_dim)^−½). `packs_heads`: what each head makes of latents has a quantized form; not where files
    hold it as one matrix for keys and values. Queries are multiplied by the `query_scale` of their positions. `indexer` chooses
    the tokens that each token attends to (None: all before it); it reads the queries' latents, and what it keeps of a token is
    cached beside the rotated key.
    """

    kind, name = "mixer", "latent-attention"
    heads: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    kv_norm: Spec
    rope: Spec | None = None
    query_rank: int | None = None
    query_norm: Spec | None = None
    bias: bool = False
    scale: float | None = None
    packs_heads: bool = True
    query_scale: Spec | None = None
    indexer: Indexer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_dim % 2:
            raise RecipeError(f"rope_dim: {self.rope_dim} is odd, and dimensions are rotated in pairs")
        if (self.query_rank is None) != (self.query_norm is None):
            raise RecipeError("query_norm: stands with query_rank, or neither does")
        if self.indexer is not None and self.query_rank is None:
            raise RecipeError("indexer: reads the queries' latents, and query_rank is null")

    def width(self, part: str, dim: int) -> int:
        widths = {"kv_norm": self.kv_rank, "query_norm": self.query_rank, "rope": self.rope_dim}
        return widths.get(part) or dim

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        heads, queries = self.heads, self.heads * (self.nope_dim + self.rope_dim)
        if self.query_rank is None:
            query = [Matrix("query", dim, queries)]
        else:
            query = [
                Matrix("query_down", dim, self.query_rank, bias=self.bias),
                Matrix("query_up", self.query_rank, queries),
            ]
        return (
            *query,
            Matrix("kv_down", dim, self.kv_rank + self.rope_dim, bias=self.bias),
            # One a head, from its query to the latents; it makes keys of them transposed.
            Matrix("key_up", self.nope_dim, self.kv_rank, heads, heads, packs=self.packs_heads),
            Matrix("value_up", self.kv_rank, self.value_dim, heads, heads, packs=self.packs_heads),
            Matrix("output", heads * self.value_dim, dim, bias=self.bias),
        )

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        """A text that is read is attended to as keys and values, a token that is written compares latents."""
        expanded = self.nope_dim + self.rope_dim + self.value_dim
        absorbed = self.kv_rank + self.rope_dim + self.kv_rank
        each = expanded if prefill else absorbed
        read = keys if self.indexer is None else min(keys, self.indexer.top_k)
        return super().own_flops(dim, keys, prefill) + 2 * self.heads * each * read

    def divided(self, dim: int, share: Share) -> Division:
        """By heads; the latents, which all heads read, are whole on every rank."""
        heads = first, last = share.inputs("heads", self.heads, self.value_dim)
        width = self.nope_dim + self.rope_dim
        return Division(
            self.change(heads=last - first),
            outputs("query" if self.query_rank is None else "query_up", (first * width, last * width))
            | {f"{stack}.weight": Cut(0, (heads,)) for stack in ("key_up", "value_up")}
            | inputs("output", (first * self.value_dim, last * self.value_dim)),
            once=("output.bias",),
            sums=("",),
            heads={"": heads},
        )

    @property
    def cache_kind(self) -> str:
        """Latents, from which every head makes its keys and values."""
        return "latent"

    @property
    def title(self) -> str:
        """MLA's whole name."""
        return "multi-head latent attention"

    def head_width(self, dim: int) -> int:
        """The width of a head's queries and keys."""
        return self.nope_dim + self.rope_dim

    def kv_cache_size(self, dim: int) -> int:
        return sum(self.kv_widths(dim))

    def kv_widths(self, dim: int) -> tuple[int, int]:
        """A latent; and the part of a key that is rotated, with what the indexer keeps."""
        indexed = 0 if self.indexer is None else self.indexer.kv_cache_size(dim)
        return self.kv_rank, self.rope_dim + indexed


@frozen()
class SigmoidRouter(Spec):
    """The `top_k` experts of the largest σ(W x) (DeepSeek-V3, 2024).

    `correction_bias` is added where experts are chosen, to balance their load, and not to their weights. `normalised`:
    the kept weights sum to one; they are then multiplied by `scale`. Parameters: `weight` (E, D) and, where it `corrects`,
    `correction_bias` (E,).
    """

    kind, name = "router", "sigmoid"
    experts: int
    top_k: int
    normalised: bool = True
    scale: float = 1.0
    corrects: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k > self.experts:
            raise RecipeError(f"top_k: {self.top_k} of only {self.experts} experts")

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("", dim, self.experts, packs=False, bias=self.corrects),)


@frozen()
class GroupRouter(SigmoidRouter):
    """Group-limited top-k: the `top_k` experts of the `top_k_groups` best groups, by σ(W x) (DeepSeek-V3, 2024).

    A group's score is the sum of its `best` experts' scores, with their corrections.
    """

    kind, name = "router", "grouped-sigmoid"
    groups: int = 1
    top_k_groups: int = 1
    best: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts % self.groups:
            raise RecipeError(f"groups: {self.groups} does not divide experts, {self.experts}")
        size = self.experts // self.groups
        if self.groups > 1 and size < self.best:
            raise RecipeError(f"groups: one of {size} experts has no {self.best} best")
        if self.top_k_groups > self.groups:
            raise RecipeError(f"top_k_groups: {self.top_k_groups} of only {self.groups} groups")
        if self.top_k > self.top_k_groups * size:
            raise RecipeError(
                f"top_k: {self.top_k} of only {self.top_k_groups * size} experts in the kept groups"
            )


@frozen()
class PredictionLayer(Spec):
    """The layer that predicts the token after the next (DeepSeek-V3, 2024, section 2.2). Embedding and head are the model's.

    A token's vector and the hidden state that predicted it, each normalised, are projected together to one vector, which
    `layers`, one, takes in. `index` is its number in the checkpoint. Parameters: `projection` (D, 2D).
    """

    kind, name = "model", "next-token-prediction"
    dim: int
    vocab: int
    index: int
    embedding_norm: Spec
    hidden_norm: Spec
    layers: tuple[Layer, ...]
    norm: Spec
    context: int | None = None
    head: ClassVar[None] = None

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("projection", 2 * dim, dim),)


def expanded_cache(recipe):
    """The cache that a token would need if each head's keys and values were kept in the place of latents."""
    from zoo.describe import Fact
    from zoo.describe.facts.memory import POLICIES

    parts = [part for _, part in recipe.walk() if isinstance(part, LatentAttention)]
    numbers = sum(part.heads * (part.nope_dim + part.rope_dim + part.value_dim) for part in parts)
    if numbers:
        size = round(numbers * POLICIES["16-bit"])
        yield Fact("cache.expanded", "cache without latents, a token", size, "bytes")
