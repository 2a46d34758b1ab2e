"""Normalisation over the features of one token. Axes: B batch, T length, D width."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe, runtime
from zoo.recipe.parts import JointRMSNormPart as Part
from zoo.runtime import ranks


class LayerNorm(nn.Module):
    """(x − mean) / √(variance + eps) · weight + bias (Ba et al., 2016, equation 4)."""

    def __init__(self, spec: recipe.LayerNorm, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.weight = mx.ones((dim,))
        if spec.bias:
            self.bias = mx.zeros((dim,))
        self.eps = spec.eps

    def __call__(self, x: mx.array) -> mx.array:  # (…, D) -> (…, D)
        return mx.fast.layer_norm(x, self.weight, self.get("bias"), self.eps)


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight (Zhang and Sennrich, 2019, equation 4), in the dtype of the weight."""

    def __init__(self, spec: recipe.RMSNorm, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.weight = mx.ones((dim,))
        self.eps = spec.eps

    @property
    def factor(self) -> mx.array:  # (D,)
        """What normalised features are multiplied by."""
        weight: mx.array = self.weight
        return weight

    def __call__(self, x: mx.array) -> mx.array:  # (…, D) -> (…, D)
        # A residual stream may be kept in float32: what reads it works in the model's own dtype.
        return runtime.rms_norm(x, self.factor, self.eps).astype(self.weight.dtype)


class PlainRMSNorm(nn.Module):
    """x / √(mean(x²) + eps)."""

    def __init__(self, spec: recipe.PlainRMSNorm, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.eps = spec.eps

    def __call__(self, x: mx.array) -> mx.array:  # (…, D) -> (…, D)
        return mx.fast.rms_norm(x, None, self.eps)


class JointRMSNorm(nn.Module):
    """RMSNorm whose mean is over all heads and their features. Axes: H heads, K width of a head."""

    def __init__(self, spec: recipe.JointRMSNorm, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.weight = mx.ones((spec.heads * dim,))  # (H·K,)
        self.eps = spec.eps

    def __call__(self, x: mx.array) -> mx.array:  # (B, H, T, K) -> (B, H, T, K)
        joined = x.transpose(0, 2, 1, 3).flatten(-2)  # (B, T, H·K)
        normed = runtime.rms_norm(joined, self.weight, self.eps).astype(self.weight.dtype)
        return normed.reshape(*joined.shape[:2], x.shape[1], -1).transpose(0, 2, 1, 3)


class JointRMSNormPart(JointRMSNorm):
    """The heads that this rank has, normalised by the mean over those of all ranks."""

    def __init__(self, spec: Part, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.count = spec.whole * dim

    def __call__(self, x: mx.array) -> mx.array:  # (B, H, T, K) -> (B, H, T, K)
        wide = x.astype(mx.float32)
        squares = ranks.all_sum((wide * wide).sum(axis=(1, 3), keepdims=True))  # (B, 1, T, 1)
        normed = (wide * mx.rsqrt(squares / self.count + self.eps)).astype(self.weight.dtype)
        return normed * self.weight.reshape(x.shape[1], 1, -1)
