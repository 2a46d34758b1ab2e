"""The token embedding, which a tied head uses as its matrix. Axes: B batch, T length, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.recipe.vocabulary import EmbeddingPart as Part
from zoo.runtime import ranks


class Embedding(nn.Module):
    """Row `id` of a (V, D) table, scaled, plus its position embedding where the recipe has one here."""

    def __init__(
        self,
        spec: recipe.Embedding,
        *,
        dim: int,
        index: int = 0,
        positions: Any = None,
        norm: Any = None,
    ) -> None:
        super().__init__()
        if not spec.shared:
            self.tokens = nn.Embedding(spec.vocab, dim)
        self._owner: Callable[[], Embedding] | None = None  # of the table, where it is another embedding's
        self.scale = spec.scale
        self.positions, self.norm = positions, norm  # None is no part

    def __call__(
        self, tokens: mx.array, offset: int | mx.array = 0, inputs_embeds: mx.array | None = None
    ) -> mx.array:  # (B, T) -> (B, T, D)
        """`inputs_embeds` (B, T, D) stands for the rows of the table, scaled already."""
        x = self.vectors(tokens) if inputs_embeds is None else inputs_embeds
        if "positions" in self:
            positions = self.positions(x.shape[1], offset)  # (T, D) or (B, T, D)
            # Sinusoids are computed in float32; learned positions have a dtype of their own.
            x = x + (positions if "weight" in self.positions else positions.astype(x.dtype))
        return self.norm(x) if "norm" in self else x

    def vectors(self, tokens: mx.array) -> mx.array:  # (B, T) -> (B, T, D)
        """The rows of the table, scaled: what `inputs_embeds` stands for."""
        x = self.look_up(tokens)
        return x * self.scale if self.scale != 1.0 else x

    def look_up(self, tokens: mx.array) -> mx.array:  # (B, T) -> (B, T, D)
        """The rows of the table alone."""
        return self.tokens(tokens) if self._owner is None else self._owner().look_up(tokens)

    def as_linear(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        """Logits by the same table: each is the product of a hidden state and a token's vector."""
        return self.tokens.as_linear(x) if self._owner is None else self._owner().as_linear(x)

    @property
    def owner(self) -> Embedding:
        """The embedding whose table it uses: itself, or the one that `share` was given."""
        return self if self._owner is None else self._owner().owner

    def share(self, other: Embedding) -> None:
        """Use the table of `other`, whose parameter it stays."""
        # Behind a function: nn.Module would count a module among its own parts, and so its table twice.
        self._owner = lambda: other


class EmbeddingPart(Embedding):
    """This rank's rows of an embedding table; the other ranks have the other rows."""

    def __init__(self, spec: Part, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.first, self.rows, self.vocab = spec.first, spec.rows, spec.vocab
        self.tokens = nn.Embedding(spec.rows, dim)

    def look_up(self, tokens: mx.array) -> mx.array:  # (B, T) -> (B, T, D)
        """The rows of the whole table: the sum over ranks, each of which has zeros for the rows that it lacks."""
        inside = (tokens >= self.first) & (tokens < self.first + self.rows)
        found = self.tokens(mx.where(inside, tokens - self.first, 0))
        return ranks.all_sum(mx.where(inside[..., None], found, 0))

    def as_linear(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        """Logits of all tokens: each rank computes those of its rows."""
        return gathered(self.tokens.as_linear(x), self.vocab)


def gathered(logits: mx.array, vocab: int) -> mx.array:  # (…, rows) -> (…, V)
    """The logits of all ranks side by side. The last rank may have fewer rows than the first."""
    missing = -(-vocab // ranks.size()) - logits.shape[-1]
    if missing:
        logits = mx.pad(logits, [(0, 0)] * (logits.ndim - 1) + [(0, missing)])
    return ranks.all_gather(logits)[..., :vocab]
