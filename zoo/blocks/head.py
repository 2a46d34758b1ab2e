"""Hidden states to logits."""

import mlx.core as mx
import mlx.nn as nn


class Head(nn.Module):
    """A (V, D) matrix of its own, or the embedding's when tied (Press and Wolf, 2016)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        if not spec.tied:
            self.output = nn.Linear(dim, spec.vocab, bias=spec.bias)
        elif spec.bias:
            self.bias = mx.zeros((spec.vocab,))

    def tie(self, embedding):
        """Use `embedding` backwards, when the recipe says so. The table stays the embedding's own parameter."""
        # Looked up at each call: a decoder's embedding is lent its encoder's table after this.
        self._table = (lambda x: embedding.as_linear(x)) if self.spec.tied else None

    def __call__(self, x):  # (B, T, D) -> (B, T, V)
        if self.spec.scale != 1.0:
            x = x * self.spec.scale
        if not self.spec.tied:
            return self.output(x)
        logits = self._table(x)
        return logits + self.bias if "bias" in self else logits
