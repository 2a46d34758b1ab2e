"""Token ids to vectors, and, when the head is tied, vectors back to logits."""

import mlx.nn as nn


class Embedding(nn.Module):
    """Row `id` of a (V, D) table, scaled, plus what marks the position when the recipe adds it here."""

    def __init__(self, spec, *, dim, index=0, positions=None, norm=None):
        super().__init__()
        if not spec.shared:
            self.tokens = nn.Embedding(spec.vocab, dim)
        self._owner = None  # of the table, where it is another embedding's
        self.scale = spec.scale
        if positions is not None:
            self.positions = positions
        if norm is not None:
            self.norm = norm

    def __call__(self, tokens, offset=0, inputs_embeds=None):  # (B, T) -> (B, T, D)
        """`inputs_embeds` (B, T, D) stands for the rows of the table, scaled already."""
        x = self.vectors(tokens) if inputs_embeds is None else inputs_embeds
        if "positions" in self:
            where = self.positions(x.shape[1], offset)
            # Waves are computed in float32; learned positions have a type of their own.
            x = x + (where if "weight" in self.positions else where.astype(x.dtype))
        return self.norm(x) if "norm" in self else x

    def vectors(self, tokens):  # (B, T) -> (B, T, D)
        """The rows of the table, scaled: what `inputs_embeds` stands for."""
        x = self.look_up(tokens)
        return x * self.scale if self.scale != 1.0 else x

    def look_up(self, tokens):  # (B, T) -> (B, T, D)
        """The rows of the table alone."""
        return self.tokens(tokens) if self._owner is None else self._owner().look_up(tokens)

    def as_linear(self, x):  # (B, T, D) -> (B, T, V)
        """The same table backwards: a logit is the product of a hidden state and a token's vector."""
        return self.tokens.as_linear(x) if self._owner is None else self._owner().as_linear(x)

    def share(self, other):
        """Use the table of `other`, whose parameter it stays."""
        self._owner = lambda: (
            other
        )  # behind a function, so that its table is no parameter of this module, too
