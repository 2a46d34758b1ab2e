"""Compilation of layers: their residual sums. Axes: B batch, D width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.blocks.cross import CrossLayer
from zoo.blocks.layer import Layer
from zoo.cache import CrossCache
from zoo.compiled_step.compiler import Function, StepCompiler, compiles

METHODS = ("__call__", "add", "normed", "scaled", "run")


@compiles(Layer, *METHODS, "add_both")
def layer(compiler: StepCompiler, block: Layer) -> Function | None:
    """(B, D), mask, cache -> (B, D); not where the feed-forward has a cache, or parts give values to others."""
    if block.passing or len(block.remembering) > 1:
        return None
    if block.parallel:
        return _both(compiler, block)
    mixer, feedforward = _sum(compiler, block, "mixer"), _sum(compiler, block, "feedforward")
    return lambda x, mask, cache: feedforward(mixer(x, mask, cache))


@compiles(CrossLayer, *METHODS)
def cross_layer(compiler: StepCompiler, block: CrossLayer) -> Function:
    """(B, D), mask, cache -> (B, D)."""
    mixer, cross = _sum(compiler, block, "mixer"), _sum(compiler, block, "cross")
    feedforward = _sum(compiler, block, "feedforward")

    def step(x: mx.array, mask: Any, cache: CrossCache) -> mx.array:
        return feedforward(cross(mixer(x, mask, cache.mixer), None, None, cache))

    return step


def _sum(compiler: StepCompiler, block: Layer, name: str) -> Function:
    """One residual sum: (B, D) and what the part of that name is called with -> (B, D)."""
    part, norm = _scaled(compiler.compile(block[name]), block.residual_scale), _norm(compiler, block, name)
    if norm is None:
        return lambda x, *inputs: x + part(x, *inputs)
    if block.placement == "pre":
        return lambda x, *inputs: x + part(norm(x), *inputs)
    return lambda x, *inputs: norm(x + part(x, *inputs))


def _both(compiler: StepCompiler, block: Layer) -> Function:
    """The one sum of a parallel layer: (B, D), mask, cache -> (B, D)."""
    mixer, feedforward = (compiler.compile(block[name]) for name in ("mixer", "feedforward"))
    first, second = (_norm(compiler, block, name) for name in ("mixer", "feedforward"))

    def both(x: mx.array, mask: Any, cache: Any) -> mx.array:
        h = x if first is None else first(x)
        return mixer(h, mask, cache) + feedforward(h if second is None else second(x))

    added = _scaled(both, block.residual_scale)
    return lambda x, mask, cache: x + added(x, mask, cache)


def _norm(compiler: StepCompiler, block: Layer, name: str) -> Function | None:
    """The norm of the part of that name, (B, D) -> (B, D); None where there is none."""
    norm = f"{name}_norm"
    return compiler.compile(block[norm]) if norm in block else None


def _scaled(part: Function, scale: float) -> Function:
    """A part's output times the layer's residual scale."""
    return part if scale == 1.0 else lambda x, *inputs: part(x, *inputs) * scale
