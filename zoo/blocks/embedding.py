"""Token ids to vectors, and, when the head is tied, vectors back to logits."""

import mlx.nn as nn


class Embedding(nn.Module):
    """Row `id` of a (V, D) table, plus what marks the position when the recipe adds it here."""

    def __init__(self, spec, *, dim, index=0, positions=None):
        super().__init__()
        self.tokens = nn.Embedding(spec.vocab, dim)
        if positions is not None:
            self.positions = positions

    def __call__(self, tokens, offset=0):  # (B, T) -> (B, T, D)
        x = self.tokens(tokens)
        return x + self.positions(tokens.shape[1], offset) if "positions" in self else x

    def as_linear(self, x):  # (B, T, D) -> (B, T, V)
        """The same table backwards: a logit is the product of a hidden state and a token's vector."""
        return self.tokens.as_linear(x)
