"""What only BERT has: its embedding and its head. Axes: B batch, S length, D width, V vocabulary."""

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.embedding import Embedding
from zoo.blocks.head import Head


class TypedEmbedding(Embedding):
    """norm(token + type + position) (Devlin et al., 2018, figure 2)."""

    def __init__(self, spec, *, dim, index=0, positions, norm):
        super().__init__(spec, dim=dim, index=index, positions=positions, norm=norm)
        self.types = nn.Embedding(spec.token_types, dim)

    def __call__(self, tokens, token_types=None):  # (B, S), (B, S) -> (B, S, D)
        """Without `token_types` every token is of the first sentence, type 0."""
        types = self.types(mx.zeros((1, 1), mx.int32) if token_types is None else token_types)
        return self.norm(self.look_up(tokens) + types + self.positions(tokens.shape[1]))


class MaskedHead(Head):
    """The embedding's table, read by a layer of its own (Devlin et al., 2018; its code's `get_masked_lm_output`)."""

    def __init__(self, spec, *, dim, index=0, norm):
        super().__init__(spec, dim=dim, index=index)
        self.dense = nn.Linear(dim, dim)
        self.norm = norm
        self.activation = activation(spec.activation)

    def __call__(self, x):  # (B, S, D) -> (B, S, V)
        return super().__call__(self.norm(self.activation(self.dense(x))))
