"""Hidden states to logits."""

import mlx.nn as nn


class Head(nn.Module):
    """A (V, D) matrix of its own, or the embedding's when tied (Press and Wolf, 2016)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        if not spec.tied:
            self.output = nn.Linear(dim, spec.vocab, bias=spec.bias)

    def tie(self, embedding):
        """Use `embedding` backwards, when the recipe says so. The table stays the embedding's own parameter."""
        self._table = embedding.as_linear if self.spec.tied else None

    def __call__(self, x):  # (B, T, D) -> (B, T, V)
        return self._table(x) if self.spec.tied else self.output(x)
