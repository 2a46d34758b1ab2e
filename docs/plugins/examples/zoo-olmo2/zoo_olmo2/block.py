"""The blocks of OLMo 2. Axes: B batch, T length, D width, H heads, K width of a head."""

import mlx.core as mx
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


class JointRMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight, the mean over heads and their features together."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.weight = mx.ones((spec.heads * dim,))  # (H·K,)
        self.eps = spec.eps

    def __call__(self, x):  # (B, H, T, K) -> (B, H, T, K)
        joined = x.transpose(0, 2, 1, 3).flatten(-2)  # (B, T, H·K)
        normed = mx.fast.rms_norm(joined, self.weight, self.eps)
        return normed.reshape(*joined.shape[:2], x.shape[1], -1).transpose(0, 2, 1, 3)
