"""The layer of Falcon-H1 and its two scaled parts. Axes: B batch, T length, D width, E all that is projected."""

import mlx.core as mx
import mlx.nn as nn
from zoo_mamba2 import block

from zoo.blocks.feedforward import GatedMLP


class ParallelLayer(nn.Module):
    """Two residual sums: of both mixers, which read the same, and of the feed-forward."""

    def __init__(self, spec, *, dim, index=0, mixer, mixer_norm, memory, feedforward, feedforward_norm):
        super().__init__()
        self.spec, self.mixer, self.mixer_norm, self.memory = spec, mixer, mixer_norm, memory
        self.feedforward, self.feedforward_norm = feedforward, feedforward_norm

    def __call__(self, x, mask, cache):  # (B, T, D) -> (B, T, D); mask and cache by part
        h, spec = self.mixer_norm(x), self.spec
        seen = self.mixer(h * spec.mixer_scales[0], mask["mixer"], cache["mixer"])
        kept = self.memory(h * spec.memory_scales[0], mask["memory"], cache["memory"])
        x = x + seen * spec.mixer_scales[1] + kept * spec.memory_scales[1]
        return x + self.feedforward(self.feedforward_norm(x))


class ScaledStateSpace(block.StateSpace):
    """Mamba-2's mixer, each of its five projections multiplied by its number."""

    def project(self, x):  # (B, T, D) -> (B, T, E)
        spec, shared = self.spec, self.spec.groups * self.spec.state
        widths = (spec.inner, spec.inner, shared, shared, spec.heads)
        scales = [mx.full(width, scale, x.dtype) for width, scale in zip(widths, spec.scales, strict=True)]
        return super().project(x) * mx.concatenate(scales)

    def gated(self, y, gate):  # (B, T, H·P) twice -> (B, T, H·P)
        if self.spec.eps is None:
            return y * self.silu(gate)
        return self.norm(y) * self.silu(gate) if self.spec.norm_first else super().gated(y, gate)


class ScaledMLP(GatedMLP):
    """down(activation(gate(x) · scales₀) · up(x)) · scales₁."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__(spec, dim=dim, index=index)
        self.spec = spec

    def __call__(self, x):  # (B, T, D) -> (B, T, D)
        hidden = self.activation(self.gate(x) * self.spec.scales[0]) * self.up(x)
        return self.down(hidden) * self.spec.scales[1]
