"""The feed-forward of Apertus. Axes: B batch, T length, F hidden."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

import zoo_apertus as specs
from zoo.blocks.feedforward import MLP


class LearnedMLP(MLP):
    """down(xIELU(up(x))) (Huang and Schlag, 2024, equation 11)."""

    def __init__(self, spec: specs.LearnedMLP, *, dim: int, index: int = 0) -> None:
        nn.Module.__init__(self)
        self.up = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, dim, bias=spec.bias)
        # softplus of these is 0.8, and 0.3 above beta.
        self.alpha_p, self.alpha_n = (mx.log(mx.expm1(mx.array([value]))) for value in (0.8, 0.3))
        self.beta, self.eps = mx.array(0.5), mx.array(-1e-6)

    def activation(self, x: mx.array) -> mx.array:  # (…, F) -> (…, F)
        """α⁺ x² + β x above zero, α⁻ (eˣ − 1 − x) + β x below it."""
        wide, alpha_p, alpha_n = (array.astype(mx.float32) for array in (x, self.alpha_p, self.alpha_n))
        beta, eps = (mx.stop_gradient(array).astype(mx.float32) for array in (self.beta, self.eps))
        above = nn.softplus(alpha_p) * mx.square(wide)
        below = (beta + nn.softplus(alpha_n)) * (mx.expm1(mx.minimum(wide, eps)) - wide)
        return (mx.where(wide > 0, above, below) + beta * wide).astype(x.dtype)
