"""Nemotron-H's layer of a feed-forward. Axes: B batch, T length, D width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_nemotron_h as specs
from zoo.blocks.layer import CachedLayer
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.compiler import Function, StepCompiler, adding, compiles


class FeedForwardLayer(CachedLayer):
    """x + feedforward(norm(x)). Its cache holds no numbers, and says how many rows and tokens were read."""

    def __init__(
        self,
        spec: specs.FeedForwardLayer,
        *,
        dim: int,
        index: int = 0,
        feedforward: nn.Module,
        feedforward_norm: nn.Module,
    ) -> None:
        super().__init__(spec, index)
        self.feedforward, self.feedforward_norm = feedforward, feedforward_norm

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of an array (B, 0)."""
        return StateCache(1, policy)

    def __call__(
        self, x: mx.array, mask: Any = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        if cache is not None:
            cache[0] = mx.zeros((x.shape[0], 0))
            cache.advance(x.shape[1])
        return x + self.feedforward(self.feedforward_norm(x))


@compiles(FeedForwardLayer, "__call__")
def step_of_layer(compiler: StepCompiler, block: FeedForwardLayer) -> Function:
    """Compiled decode step of a layer that is a feed-forward alone: (B, D), mask, cache -> (B, D)."""
    norm, add = compiler.compile(block.feedforward_norm), adding(compiler.compile(block.feedforward))

    def step(x: mx.array, mask: Any, cache: StateCache) -> mx.array:
        if cache[0] is None:
            cache[0] = mx.zeros((x.shape[0], 0))
        cache.advance(1)
        return add(x, norm(x))  # type: ignore[no-any-return]

    return step
