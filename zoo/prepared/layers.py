"""Layers as functions: their residual sums. Axes: B batch, D width."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.blocks.cross import CrossLayer
from zoo.blocks.layer import Layer
from zoo.cache import CrossCache
from zoo.prepared.forms import Function, Preparation, form


@form(Layer, "__call__", "add", "run")
def layer(preparation: Preparation, block: Layer) -> Function | None:
    """(B, D), mask, cache -> (B, D); not where the feed-forward has a cache, or parts give values to others."""
    if block.passing or len(block.remembering) > 1:
        return None
    mixer, feedforward = _sum(preparation, block, "mixer"), _sum(preparation, block, "feedforward")
    return lambda x, mask, cache: feedforward(mixer(x, mask, cache))


@form(CrossLayer, "__call__", "add", "run")
def cross_layer(preparation: Preparation, block: CrossLayer) -> Function:
    """(B, D), mask, cache -> (B, D)."""
    mixer, cross = _sum(preparation, block, "mixer"), _sum(preparation, block, "cross")
    feedforward = _sum(preparation, block, "feedforward")

    def step(x: mx.array, mask: Any, cache: CrossCache) -> mx.array:
        return feedforward(cross(mixer(x, mask, cache.mixer), None, None, cache))

    return step


def _sum(preparation: Preparation, block: Layer, name: str) -> Function:
    """One residual sum: (B, D) and what the part of that name is called with -> (B, D)."""
    part, norm = preparation.of(block[name]), preparation.of(block[f"{name}_norm"])
    if block.placement == "pre":
        return lambda x, *inputs: x + part(norm(x), *inputs)
    return lambda x, *inputs: norm(x + part(x, *inputs))
