"""A layer: a mixer between tokens, then a feed-forward for each token, both around a residual path."""

import mlx.nn as nn


class Layer(nn.Module):
    """Two residual sums, their norms before or after.

    pre                          post
    x ─┬─ norm ─ mixer ─ + ─     x ─┬─ mixer ─ + ─ norm ─
       └──────────────── ┘          └───────── ┘
    """

    def __init__(self, spec, *, dim, index=0, mixer, feedforward, mixer_norm, feedforward_norm):
        super().__init__()
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm
        self.placement = spec.placement

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        if self.placement == "pre":
            x = x + self.mixer(self.mixer_norm(x), mask, cache)
            return x + self.feedforward(self.feedforward_norm(x))
        x = self.mixer_norm(x + self.mixer(x, mask, cache))
        return self.feedforward_norm(x + self.feedforward(x))
