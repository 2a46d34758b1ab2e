"""LFM2's short convolution. Axes: B batch, T length, D width, E channels, K kernel."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.convolution import Convolution, tokens_only
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.compiler import Function, StepCompiler, compiles
from zoo.compiled_step.convolution import convolution, stepping
from zoo_lfm2 import specs


class ShortConvolution(nn.Module):
    """output(C · convolution(B · h)) (Amini et al., 2025, section 2). `B`, `C` and `h` are the paper's names."""

    def __init__(self, spec: specs.ShortConvolution, *, dim: int, index: int = 0) -> None:
        super().__init__()
        channels = spec.channels or dim
        self.input = nn.Linear(dim, 3 * channels, bias=spec.bias)
        self.convolution = Convolution(channels, spec.kernel, spec.bias)
        self.output = nn.Linear(channels, dim, bias=spec.bias)

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the last K − 1 values before the convolution."""
        return StateCache(1, policy)

    def initialise(self, key: mx.array) -> None:
        """Initialise the convolution for training: uniform, within 1/√K."""
        self.convolution.draw_weight(key)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: StateCache | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D); mask (B, T)
        B, C, h = self.project(x)
        before = None if cache is None else cache[0]
        mixed, before = self.convolve(tokens_only(B * h, mask), before, mask)
        if cache is not None:
            cache[0] = before
            cache.advance(x.shape[1])
        return self.output(C * mixed)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """The input gate B, the output gate C and the values h: (B, T, D) -> (B, T, E) each."""
        B, C, h = mx.split(self.input(x), 3, axis=-1)
        return B, C, h

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:  # (B, T, E) -> (B, T, E), (B, K − 1, E)
        """The convolution, and the values before it that the next call needs."""
        return self.convolution(x, before, mask)


@compiles(ShortConvolution, "__call__", "project", "convolve")
def step_of_mixer(compiler: StepCompiler, block: ShortConvolution) -> Function:
    """Compiled decode step: (B, D), mask, cache -> (B, D)."""
    project, output = compiler.compile(block.input), compiler.compile(block.output)
    convolve = convolution(compiler, block.convolution)

    def step(x: mx.array, before: mx.array) -> tuple[mx.array, mx.array]:
        B, C, h = mx.split(project(x), 3, axis=-1)
        mixed, before = convolve(B * h, before)
        return output(C * mixed), before

    return stepping(block, step)
