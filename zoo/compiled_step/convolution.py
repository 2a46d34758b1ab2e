"""The short convolution of recurrent mixers as a function, for one token a row. Axes: B batch, E channels, K kernel."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.convolution import Convolution
from zoo.cache import StateCache
from zoo.compiled_step.compiler import Function, StepCompiler


def convolution(
    compiler: StepCompiler, block: Convolution, activation: Function | None = None, wide: bool = False
) -> Function:
    """One token of the convolution: (B, E) and the K − 1 values before it, (B, K − 1, E) -> (B, E) and the values for the next token.

    On a GPU products, sum and activation are one kernel. The output is in float32 if `wide`.
    """
    weight = compiler.take(block, "weight")
    bias = compiler.take(block, "bias") if "bias" in block else 0
    rows = mx.split(weight, len(weight))  # (1, E) each
    mx.eval(rows)

    def add(*columns: mx.array) -> mx.array:  # (B, 1, E) each
        y = sum((row * column for row, column in zip(rows, columns, strict=True)), bias)
        y = y if activation is None else activation(y)
        return y.astype(mx.float32) if wide else y

    add_columns = runtime.fused(add)

    def convolve(x: mx.array, before: mx.array) -> tuple[mx.array, mx.array]:
        window = mx.concatenate([before, x[:, None]], axis=1)  # (B, K, E)
        return mx.squeeze(add_columns(*mx.split(window, len(rows), axis=1)), 1), window[:, 1:]

    return convolve


def stepping(block: nn.Module, step: Function) -> Function:
    """The function of a recurrent mixer, (B, D), mask, cache -> (B, D); the block itself before the first token.

    `step(x, *arrays)` gives the output and the arrays that the cache then holds.
    """

    def run(x: mx.array, mask: mx.array | None, cache: StateCache) -> mx.array:
        if mask is not None or any(array is None for array in cache.arrays):
            return mx.squeeze(block(x[:, None], mask, cache), 1)
        y, *arrays = step(x, *cache.arrays)
        cache.arrays = arrays
        cache.advance(1)
        return y  # type: ignore[no-any-return]

    return run
