"""Self- and cross-attention as functions, for one token a row.

Axes: B batch, D width, H heads, G key/value heads, K width of a head, S keys or source.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeGuard

import mlx.core as mx

from zoo import runtime
from zoo.blocks.attention import Attention, AttentionPart, CrossAttention, MultiHeadAttention
from zoo.blocks.mask import Mask, by_head
from zoo.blocks.norm import RMSNorm
from zoo.blocks.position import RoPE
from zoo.cache import CrossCache
from zoo.compiled_step import fallback_ops
from zoo.compiled_step.blocks import rms_normed
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles, has_methods_of


@compiles(Attention, "__call__", "attend", "project", "split", "merge", "rotate")
def attention(compiler: StepCompiler, block: Attention) -> Function | None:
    """(B, D), mask, cache -> (B, D); not where the angles of keys change with the length of the text.

    The heads of one token need no transposition: (B, H·K) is (B, H, 1, K). Queries and keys are turned together where
    nothing is done to either before. A subclass may have a `mix` of its own.
    """
    if isinstance(block.rope, RoPE) and block.rope.depends_on_length:
        return None
    output, mix, heads_of = compiler.compile(block.output), mix_of(block), _heads_of(compiler, block)
    positions, width = compiler.positions, block.heads * block.head_dim

    def attend(x: mx.array, mask: Mask, cache: Any) -> mx.array:  # (B, D) -> (B, H·K)
        queries, keys, values = heads_of(x, positions.next)  # (B, H, 1, K), two of (B, G, 1, K)
        keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        # No −1 in the shape: with it MLX adds an operation even to an array that has the shape.
        return mix(queries, keys, values, mask).reshape(x.shape[0], width)

    return chained(attend, output)


def _heads_of(compiler: StepCompiler, block: Attention) -> Function:
    """(B, D), the position of each row -> queries (B, H, 1, K), keys and values (B, G, 1, K), turned.

    For an `AttentionPart` the queries are those of whole groups.
    """
    heads, kv_heads, width = block.heads, block.kv_heads, block.head_dim
    turn = None if block.rope is None else compiler.compile_if_known(block.rope) or block.rope
    part_of_groups = _is_part(block)
    names = block.joins if part_of_groups else ("query", "key", "value")
    joined = compiler.joined(*(block[name] for name in names))
    normed, together = _norm_of_both(compiler, block, names[:2])
    if joined is not None and together and turn is not None:
        divide = _divide(block) if part_of_groups else lambda both: mx.split(both, [heads], axis=1)

        def turned_together(x: mx.array, offset: Any) -> list[mx.array]:
            both, values = mx.split(joined(x).reshape(x.shape[0], -1, 1, width), [heads + kv_heads], axis=1)
            return [*divide(turn(both if normed is None else normed(both), offset)), values]

        return turned_together
    apart = [compiler.compile(part) for part in (block.query, block.key, block.value)]
    order = [names.index(name) for name in ("query", "key", "value")]
    ends = list(accumulate(heads if name == "query" else kv_heads for name in names))[:-1]

    def parts(x: mx.array) -> list[mx.array]:  # (B, D) -> (B, H, 1, K), two of (B, G, 1, K)
        if joined is None:
            return [part(x).reshape(x.shape[0], -1, 1, width) for part in apart]
        found = mx.split(joined(x).reshape(x.shape[0], -1, 1, width), ends, axis=1)
        return [found[index] for index in order]

    norms = [
        (compiler.compile_if_known(block[name]) or block[name]) if name in block else None
        for name in ("query_norm", "key_norm")
    ]

    def turned_apart(x: mx.array, offset: Any) -> list[mx.array]:
        *both, values = parts(x)
        both = [part if norm is None else norm(part) for part, norm in zip(both, norms, strict=True)]
        queries, keys = both if turn is None else (turn(part, offset) for part in both)
        return [block.with_others(queries) if part_of_groups else queries, keys, values]

    return turned_apart


def _norm_of_both(
    compiler: StepCompiler, block: Attention, names: Sequence[str]
) -> tuple[Function | None, bool]:
    """The norm of queries and keys side by side, (B, H + G, 1, K), or None; and whether one function can do both norms.

    `names` are "query" and "key" in the order in which they lie.
    """
    norms = [block[f"{name}_norm"] for name in names if f"{name}_norm" in block]
    if not norms:
        return None, True
    plain = all(has_methods_of(norm, RMSNorm, "__call__") for norm in norms)
    if len(norms) < 2 or not plain or norms[0].eps != norms[1].eps:
        return None, False
    weights = [compiler.take(norm, "weight") for norm in norms]
    if any(weight.shape != (block.head_dim,) or weight.dtype != weights[0].dtype for weight in weights):
        return None, False
    counts = (block.heads if name == "query" else block.kv_heads for name in names)
    weight = mx.concatenate(
        [mx.broadcast_to(one, (count, 1, one.size)) for one, count in zip(weights, counts, strict=True)]
    )
    return rms_normed(weight, norms[0].eps), True


def mix_of(block: MultiHeadAttention) -> Function:
    """softmax(Q Kᵀ · scale + mask) V, the block's own."""
    if _is_part(block):
        return _mix_of_part(block)
    if not has_methods_of(block, MultiHeadAttention, "mix"):
        return block.mix
    return _mix_of_groups(block, block.heads)


def _mix_of_groups(block: MultiHeadAttention, heads: int) -> Function:
    """The same for so many heads, of whole groups."""
    attend, scale = mx.fast.scaled_dot_product_attention, block.scale
    if runtime.has_fused_kernels():
        return lambda queries, keys, values, mask: attend(queries, keys, values, scale=scale, mask=mask)
    return fallback_ops.attention(scale, heads, block.head_dim)


def _is_part(block: MultiHeadAttention) -> TypeGuard[AttentionPart]:
    """Whether the block is an `AttentionPart`, with that class's own way to compute attention."""
    return has_methods_of(block, AttentionPart, "mix", "with_others", "without_others")


def _divide(block: AttentionPart) -> Function:
    """A function that divides queries and keys side by side, (B, H + G, 1, K), into queries of whole groups, and keys.

    The outputs of other ranks' heads are dropped, so any vectors can be their queries. Where the keys beside the queries are
    enough, they are taken: the two slices overlap, and nothing is copied.
    """
    heads, kv_heads, (before, after) = block.heads, block.kv_heads, block.others
    if not before:
        end = heads + after
        if after <= kv_heads:
            return lambda both: (both[:, :end], both[:, heads:])
        return lambda both: (block.with_others(both[:, :heads]), both[:, heads:])
    if not after and before <= kv_heads:
        return lambda both: (both[:, kv_heads - before :], both[:, :kv_heads])
    return lambda both: (block.with_others(both[:, kv_heads:]), both[:, :kv_heads])


def _mix_of_part(block: AttentionPart) -> Function:
    """softmax(Q Kᵀ · scale + mask) V for the queries of whole groups -> (B, H·K), the outputs of this rank's heads alone."""
    mix = _mix_of_groups(block, block.heads + sum(block.others))
    first = block.others[0] * block.head_dim
    last = first + block.heads * block.head_dim

    def mixed(queries: mx.array, keys: mx.array, values: mx.array, mask: Mask) -> mx.array:
        mask = block.with_others(mask) if by_head(mask) else mask
        return mix(queries, keys, values, mask).reshape(len(queries), -1)[:, first:last]

    return mixed


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
