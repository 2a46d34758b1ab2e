"""Cross-attention of one token a row. Axes: B batch, D width, H heads, G key/value heads, K width of a head, S source."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.blocks.cross import CrossAttention
from zoo.blocks.mask import Mask
from zoo.cache import CrossCache
from zoo.compiled_step.attention import mix_of
from zoo.compiled_step.compiler import Function, StepCompiler, compiles


@compiles(CrossAttention, "__call__", "split", "merge")
def cross_attention(compiler: StepCompiler, block: CrossAttention) -> Function:
    """(B, D), None, mask, cache -> (B, D), once the cache has the source's keys and values, (B or 1, G, S, K)."""
    query, output, mix = compiler.compile(block.query), compiler.compile(block.output), mix_of(block)
    heads, width = block.heads, block.head_dim

    def step(x: mx.array, memory: Any, mask: Mask, cache: CrossCache) -> mx.array:
        rows = x.shape[0]
        keys, values = cache.keys, cache.values
        if keys.shape[0] != rows:  # one source for all rows, as in a beam search
            keys = mx.broadcast_to(keys, (rows, *keys.shape[1:]))
            values = mx.broadcast_to(values, (rows, *values.shape[1:]))
        queries = query(x).reshape(rows, heads, 1, width)
        mask = cache.mask if mask is None else mask
        return output(mix(queries, keys, values, mask).reshape(rows, -1))

    return step
