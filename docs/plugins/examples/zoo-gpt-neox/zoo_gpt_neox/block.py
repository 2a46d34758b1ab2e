"""The layer of GPT-NeoX. Axes: B batch, T length, D width."""

import mlx.nn as nn


class ParallelLayer(nn.Module):
    """Both read what comes in, each through a norm of its own; one sum takes both."""

    def __init__(self, spec, *, dim, index=0, mixer, feedforward, mixer_norm, feedforward_norm):
        super().__init__()
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        mixed = self.mixer(self.mixer_norm(x), mask, cache)
        return x + mixed + self.feedforward(self.feedforward_norm(x))
