"""The two ends of a model: tokens to vectors, and hidden states to logits. Imports no mlx."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from zoo.errors import RecipeError
from zoo.frozen import frozen
from zoo.recipe.division import INSTEAD, Division, Range, Share, outputs
from zoo.recipe.rope import RoPE
from zoo.recipe.spec import Matrix, Spec


@frozen()
class Embedding(Spec):
    """A table of one vector a token, (V, D), times `scale`, plus `positions`, the position embeddings, if any.

    `norm` then normalises the sum (BERT, BART). `shared`: a decoder's, whose table is its encoder's. Its tables are no
    active parameters: of each, a token reads one row.
    """

    kind, name = "embedding", "tokens"
    vocab: int
    dim: int
    positions: Spec | None = dataclasses.field(default=None, metadata={"kind": "position"})
    scale: float = 1.0
    norm: Spec | None = dataclasses.field(default=None, metadata={"kind": "norm"})
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.positions, RoPE):
            raise RecipeError(
                f"positions: {self.positions.block()} turns queries and keys and is not added to embeddings"
            )

    def active_parameters(self, dim: int) -> int:
        return super().active_parameters(dim) - self.own_parameters(dim)

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return () if self.shared else (Matrix("tokens", dim, self.vocab, uses=0),)

    def divided(self, dim: int, share: Share) -> Division | None:
        """By rows of the table."""
        if self.shared:
            return None
        rows = rows_of(self.vocab, share)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Division(
            EmbeddingPart(**fields, first=rows[0], rows=rows[1] - rows[0]), outputs("tokens", rows)
        )


@frozen(kw_only=True)
class EmbeddingPart(Embedding):
    """The `rows` of an embedding's table from row `first` on, which a rank has; other ranks have the others."""

    kind, name = "embedding", "tokens-part"
    first: int = dataclasses.field(metadata={"least": 0})
    rows: int

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return (Matrix("tokens", dim, self.rows, uses=0),)


def rows_of(vocab: int, share: Share) -> Range:
    """The rows of a vocabulary that a rank has: as many on each, but for the last ranks, which may have fewer."""
    each = -(-vocab // share.ranks)
    first, last = min(share.rank * each, vocab), min((share.rank + 1) * each, vocab)
    if first == last:
        raise RecipeError(f"vocab: {vocab} cannot be divided among {share.ranks} ranks; {INSTEAD}")
    return first, last


@frozen()
class Head(Spec):
    """Hidden states, times `scale`, to logits, D → V: by the embedding table when `tied`, else a matrix of its own.

    `vocab` None: the embedding's. With `bias` the parameter (V,) is `head.bias` where the head is tied, else
    `head.output.bias`, beside the matrix `head.output.weight`. Either matrix is among the active parameters. A head with
    logits of something else than tokens says `predicts_tokens = False`.
    """

    kind, name = "head", "logits"
    predicts_tokens: ClassVar[bool] = True
    tied: bool = False
    bias: bool = False
    vocab: int | None = None
    scale: float = 1.0

    def own_parameters(self, dim: int) -> int:
        return super().own_parameters(dim) + (self.tied and self.bias) * (self.vocab or 0)

    @property
    def outputs(self) -> int:
        """How many logits its module computes."""
        return self.vocab or 0

    def active_parameters(self, dim: int) -> int:
        return super().active_parameters(dim) + self.tied * dim * self.outputs

    def matrices(self, dim: int) -> tuple[Matrix, ...]:
        return () if self.tied else (Matrix("output", dim, self.outputs, bias=self.bias),)

    def own_flops(self, dim: int, keys: int, prefill: bool = False) -> int:
        tied = 2 * dim * self.outputs if self.tied else 0  # by the embedding's table
        return super().own_flops(dim, keys, prefill) + tied

    def divided(self, dim: int, share: Share) -> Division | None:
        """By rows of its matrix, which is the embedding's to divide where it is tied."""
        if self.vocab is None:
            return None
        rows = rows_of(self.vocab, share)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        part = HeadPart(**fields, rows=rows[1] - rows[0])
        return Division(part, {} if self.tied else outputs("output", rows))


@frozen(kw_only=True)
class HeadPart(Head):
    """`rows` of a head's matrix, which a rank has; other ranks have the others."""

    kind, name = "head", "logits-part"
    vocab: int
    rows: int

    @property
    def outputs(self) -> int:
        return self.rows
