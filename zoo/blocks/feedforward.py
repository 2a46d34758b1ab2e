"""Feed-forward blocks: each token by itself, D -> hidden -> D. Axes: B batch, T length, D width, F hidden."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe
from zoo.blocks.activation import activation


class MLP(nn.Module):
    """down(activation(up(x))) (Vaswani et al., 2017, section 3.3)."""

    def __init__(self, spec: recipe.MLP, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.up = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.down(self.activation(self.up(x)))  # (B, T, F) between


class GatedMLP(nn.Module):
    """down(activation(gate(x)) · up(x)) (Shazeer, 2020, equation 6)."""

    def __init__(self, spec: recipe.GatedMLP, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.up = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.down(self.activation(self.gate(x)) * self.up(x))  # (B, T, F) between
