"""Self- and cross-attention as functions, for one token a row.

Axes: B batch, D width, H heads, G key/value heads, K width of a head, S keys or source.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.attention import Attention, CrossAttention, MultiHeadAttention
from zoo.blocks.mask import Mask
from zoo.blocks.norm import RMSNorm
from zoo.blocks.position import RoPE
from zoo.blocks.shared import KeyValueSource, SharedKeyValueAttention
from zoo.cache import CrossCache
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles, has_methods_of


@compiles(Attention, "__call__", "attend", "mix_cached", "project", "split", "merge", "rotate")
def attention(compiler: StepCompiler, block: Attention) -> Function | None:
    """(B, D), mask, cache -> (B, D); not where the angles of keys change with the length of the text."""
    attend = attend_of(compiler, block)
    return None if attend is None else chained(attend, compiler.compile(block.output))


@compiles(KeyValueSource, "__call__", "attend", "mix_cached", "project", "split", "merge", "rotate")
def key_value_source(compiler: StepCompiler, block: KeyValueSource) -> Function | None:
    """(B, D), mask, cache, values handed on -> (B, D)."""
    attend = attend_of(compiler, block, shares=block.spec.shares)
    return None if attend is None else chained(attend, compiler.compile(block.output))


@compiles(SharedKeyValueAttention, "__call__", "split", "merge", "rotate")
def shared_attention(compiler: StepCompiler, block: SharedKeyValueAttention) -> Function:
    """(B, D), mask, cache, values handed on -> (B, D), by the mask of the layer that gave the keys."""
    query, mix, heads, width = compiler.compile(block.query), mix_of(block), block.heads, block.head_dim
    norm = compiler.compile(block.query_norm) if "query_norm" in block else None
    rotate = None if block.rope is None else compiler.compile_if_known(block.rope) or block.rope
    source = block.spec.source

    def attend(x: mx.array, _: Mask, cache: Any, passed: dict[str, Any]) -> mx.array:  # (B, D) -> (B, H·K)
        keys, values, mask, offset = passed[source]
        queries = query(x).reshape(x.shape[0], heads, 1, width)
        queries = queries if norm is None else norm(queries)
        queries = queries if rotate is None else rotate(queries, offset)
        return mix(queries, keys, values, mask).reshape(x.shape[0], heads * width)

    return chained(attend, compiler.compile(block.output))


def attend_of(
    compiler: StepCompiler, block: Attention, heads_of: Function | None = None, shares: str | None = None
) -> Function | None:
    """(B, D), mask, cache -> (B, H·K), which the output projection reads.

    The heads of one token need no transposition: (B, H·K) is (B, H, 1, K). Queries and keys are rotated together where
    nothing is done to either before. A subclass may have a `mix` of its own. `heads_of` makes its queries, keys and values
    in another way: (B, D), position -> (B, H, 1, K), two of (B, G, 1, K), rotated. Under the name `shares` keys and values
    are handed on in a fourth argument.
    """
    if isinstance(block.rope, RoPE) and block.rope.depends_on_length:
        return None
    mix, heads_of = mix_of(block), heads_of or _heads_of(compiler, block)
    positions, width, scale = compiler.positions, block.heads * block.head_dim, block.scale
    plain = has_methods_of(block, MultiHeadAttention, "mix")
    grow = block.query_scale if "query_scale" in block else None

    def attend(x: mx.array, mask: Mask, cache: Any, passed: Any = None) -> mx.array:  # (B, D) -> (B, H·K)
        queries, keys, values = heads_of(x, positions.next)  # (B, H, 1, K), two of (B, G, 1, K)
        if grow is not None:
            queries = grow(queries, positions.next)
        if plain and shares is None and getattr(cache, "attends_packed", False):
            mixed = cache.attend(queries, keys, values, scale, mask)
        else:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
            if shares is not None:
                passed[shares] = keys, values, mask, positions.next
            mixed = mix(queries, keys, values, mask)
        # No −1 in the shape: with it MLX adds an operation even to an array that has the shape.
        return mixed.reshape(x.shape[0], width)

    return attend


def _heads_of(compiler: StepCompiler, block: Attention) -> Function:
    """(B, D), the position of each row -> queries (B, H, 1, K), keys and values (B, G, 1, K), rotated."""
    heads, kv_heads, width = block.heads, block.kv_heads, block.head_dim
    rotate = None if block.rope is None else compiler.compile_if_known(block.rope) or block.rope
    joined = compiler.joined(block.query, block.key, block.value)
    norm, together = _norm_of_both(compiler, block)
    if joined is not None and together and rotate is not None:

        def rotated_together(x: mx.array, offset: Any) -> list[mx.array]:
            both, values = mx.split(joined(x).reshape(x.shape[0], -1, 1, width), [heads + kv_heads], axis=1)
            return [*mx.split(rotate(both if norm is None else norm(both), offset), [heads], axis=1), values]

        return rotated_together
    projections = [compiler.compile(part) for part in (block.query, block.key, block.value)]

    def project(x: mx.array) -> list[mx.array]:  # (B, D) -> (B, H, 1, K), two of (B, G, 1, K)
        if joined is None:
            return [projection(x).reshape(x.shape[0], -1, 1, width) for projection in projections]
        return mx.split(joined(x).reshape(x.shape[0], -1, 1, width), [heads, heads + kv_heads], axis=1)

    norms = [
        (compiler.compile_if_known(block[name]) or block[name]) if name in block else None
        for name in ("query_norm", "key_norm")
    ]

    def rotated_apart(x: mx.array, offset: Any) -> list[mx.array]:
        *both, values = project(x)
        both = [part if norm is None else norm(part) for part, norm in zip(both, norms, strict=True)]
        return [*(both if rotate is None else (rotate(part, offset) for part in both)), values]

    return rotated_apart


def _norm_of_both(compiler: StepCompiler, block: Attention) -> tuple[Function | None, bool]:
    """The norm of queries and keys side by side, (B, H + G, 1, K), or None; and whether one function can do both norms."""
    norms = [block[name] for name in ("query_norm", "key_norm") if name in block]
    if not norms:
        return None, True
    plain = all(has_methods_of(norm, RMSNorm, "__call__") for norm in norms)
    if len(norms) < 2 or not plain or norms[0].eps != norms[1].eps:
        return None, False
    for norm in norms:
        compiler.take(norm, "weight")
    weights = [norm.factor for norm in norms]
    if any(weight.shape != (block.head_dim,) or weight.dtype != weights[0].dtype for weight in weights):
        return None, False
    weight = mx.concatenate(
        [
            mx.broadcast_to(weight, (count, 1, weight.size))
            for weight, count in zip(weights, (block.heads, block.kv_heads), strict=True)
        ]
    )
    return runtime.step.rms_norm(weight, norms[0].eps), True


def mix_of(block: MultiHeadAttention) -> Function:
    """softmax(Q Kᵀ · scale + mask) V, the block's own."""
    if not has_methods_of(block, MultiHeadAttention, "mix"):
        return block.mix
    return runtime.step.attention(block.scale, block.heads, block.head_dim)


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
