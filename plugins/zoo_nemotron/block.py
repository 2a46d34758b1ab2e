"""Nemotron's norm. Axes: D width."""

from __future__ import annotations

import mlx.core as mx

import zoo_nemotron as specs
from zoo import runtime
from zoo.blocks.norm import LayerNorm
from zoo.compiled_step.compiler import Function, StepCompiler, compiles


class OffsetLayerNorm(LayerNorm):
    """LayerNorm times 1 + weight; a weight of zero leaves the normalised features as they are."""

    def __init__(self, spec: specs.OffsetLayerNorm, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.weight = mx.zeros((dim,))

    def __call__(self, x: mx.array) -> mx.array:  # (…, D) -> (…, D)
        return mx.fast.layer_norm(x, 1.0 + self.weight, self.get("bias"), self.eps)


@compiles(OffsetLayerNorm, "__call__")
def step_of_norm(compiler: StepCompiler, norm: OffsetLayerNorm) -> Function:
    """(…, D) -> (…, D)."""
    bias = compiler.take(norm, "bias") if "bias" in norm else None
    return runtime.step.layer_norm(1.0 + compiler.take(norm, "weight"), bias, norm.eps)
