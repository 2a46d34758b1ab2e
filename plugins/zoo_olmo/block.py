"""The layer of OLMo 2. Axes: B batch, T length, D width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_olmo as specs
from zoo.blocks.layer import CachedLayer
from zoo.blocks.mask import Mask
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles


class OutputNormLayer(CachedLayer):
    """Two residual sums, each of what a block gives, normalised (OLMo Team, 2024, section 3.2).

    x ─┬─ mixer ─ norm ─ + ─┬─ feed-forward ─ norm ─ + ─
       └──────────────── ┘  └─────────────────────── ┘
    """

    def __init__(
        self,
        spec: specs.OutputNormLayer,
        *,
        dim: int,
        index: int = 0,
        mixer: nn.Module,
        feedforward: nn.Module,
        mixer_norm: nn.Module,
        feedforward_norm: nn.Module,
    ) -> None:
        super().__init__(spec, index)
        self.mixer, self.feedforward = mixer, feedforward
        self.mixer_norm, self.feedforward_norm = mixer_norm, feedforward_norm

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.add("feedforward", self.add("mixer", x, mask, cache))

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum: x plus the normalised output of the part of that name, called with `inputs`."""
        return x + self[f"{name}_norm"](self[name](x, *inputs))


@compiles(OutputNormLayer, "__call__", "add")
def step_of_layer(compiler: StepCompiler, block: OutputNormLayer) -> Function:
    """Compiled decode step: (B, D), mask, cache -> (B, D)."""

    def compile_sum(name: str) -> Function:
        part = chained(compiler.compile(block[name]), compiler.compile(block[f"{name}_norm"]))
        return lambda x, *inputs: x + part(x, *inputs)

    mixer, feedforward = compile_sum("mixer"), compile_sum("feedforward")
    return lambda x, mask, cache: feedforward(mixer(x, mask, cache))
