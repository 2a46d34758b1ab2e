"""The layer of OLMo 2. Axes: B batch, T length, D width."""

import mlx.nn as nn


class OutputNormLayer(nn.Module):
    """Two residual sums, each of what a block gives, normalised; the residual path itself is never."""

    def __init__(self, spec, *, dim, index=0, mixer, feedforward, mixer_norm, feedforward_norm):
        super().__init__()
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        x = x + self.mixer_norm(self.mixer(x, mask, cache))
        return x + self.feedforward_norm(self.feedforward(x))
