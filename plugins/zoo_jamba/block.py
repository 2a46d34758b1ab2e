"""Jamba's state space. Axes: B batch, T length, E channels, N state a channel, R rank of dt."""

from __future__ import annotations

import mlx.core as mx

import zoo_jamba as specs
from zoo_mamba.block import SelectiveStateSpace


class NormedStateSpace(SelectiveStateSpace):
    """Mamba's, with a norm on each of dt's low-rank form, B and C, which keeps large models from diverging (section 6.4)."""

    spec: specs.NormedStateSpace

    def __init__(self, spec: specs.NormedStateSpace, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.dt_norm, self.B_norm, self.C_norm = (
            mx.ones(spec.dt_rank),
            mx.ones(spec.state),
            mx.ones(spec.state),
        )

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """dt's low-rank form (B, T, R), B and C (B, T, N), normalised: (B, T, E) ->."""
        weights = (self.dt_norm, self.B_norm, self.C_norm)
        pairs = zip(super().project(x), weights, strict=True)
        dt, B, C = (mx.fast.rms_norm(part, weight, self.spec.eps) for part, weight in pairs)
        return dt, B, C
