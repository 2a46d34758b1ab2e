"""Norms, positions, feed-forwards and mixtures as functions.

Axes: B batch, D width, F hidden, E experts, k experts of a token, H heads, K width of a head.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.feedforward import MLP, GatedMLP
from zoo.blocks.moe import MANY, Experts, MoE, Router, StackedLinear, top_k
from zoo.blocks.norm import LayerNorm, RMSNorm
from zoo.blocks.position import RoPE, frequencies
from zoo.compiled_step import fallback_ops
from zoo.compiled_step.compiler import Function, StepCompiler, compiles


@compiles(RMSNorm, "__call__")
def rms_norm(compiler: StepCompiler, norm: RMSNorm) -> Function:
    """(…, D) -> (…, D)."""
    return rms_normed(compiler.take(norm, "weight"), norm.eps)


def rms_normed(weight: mx.array, eps: float) -> Function:
    """(…, D) -> (…, D); `weight` may be one for all vectors, or have more axes."""
    dtype, one = weight.dtype, weight.ndim == 1
    mx.eval(weight)
    if dtype == mx.float32 and not runtime.has_fused_kernels():
        return fallback_ops.rms_norm(weight, eps)
    norm = mx.fast.rms_norm
    if one:
        return lambda x: norm(x, weight, eps).astype(dtype)
    return lambda x: (norm(x, None, eps) * weight).astype(dtype)


@compiles(LayerNorm, "__call__")
def layer_norm(compiler: StepCompiler, norm: LayerNorm) -> Function:
    """(…, D) -> (…, D)."""
    weight, eps = compiler.take(norm, "weight"), norm.eps
    bias = compiler.take(norm, "bias") if "bias" in norm else None
    mx.eval(weight, bias)
    if weight.dtype == mx.float32 and not runtime.has_fused_kernels():
        return fallback_ops.layer_norm(weight, bias, eps)
    return lambda x: mx.fast.layer_norm(x, weight, bias, eps)


@compiles(RoPE, "__call__")
def rope(compiler: StepCompiler, rope: RoPE) -> Function | None:
    """(B, H, 1, K), the position of each row -> (B, H, 1, K); where the angles depend on the position alone."""
    if rope.depends_on_length or rope.magnitude != 1.0:
        return None
    dims, interleaved, wavelengths = rope.dims, rope.interleaved, rope._wavelengths
    base, turn = rope.theta if wavelengths is None else None, mx.fast.rope

    def by_kernel(x: mx.array, offset: Any) -> mx.array:
        return turn(x, dims, traditional=interleaved, base=base, scale=1.0, offset=offset, freqs=wavelengths)

    if interleaved or runtime.has_fused_kernels():
        return by_kernel
    turns = frequencies(rope.theta, dims) if wavelengths is None else (1 / wavelengths).tolist()
    by_operations = compiler.shared(("turn", *turns), lambda: fallback_ops.Rotation(turns))

    def turned(x: mx.array, offset: Any) -> mx.array:
        if type(offset) is int and x.shape[-1] == dims and x.dtype == mx.float32:
            return by_operations(x, offset)
        return by_kernel(x, offset)

    return turned


@compiles(MLP, "__call__")
def feedforward(compiler: StepCompiler, block: MLP) -> Function:
    """(B, D) -> (B, D)."""
    up, down, activation = compiler.compile(block.up), compiler.compile(block.down), block.activation
    return lambda x: down(activation(up(x)))


@compiles(GatedMLP, "__call__")
def gated_feedforward(compiler: StepCompiler, block: GatedMLP) -> Function:
    """(B, D) -> (B, D)."""
    both, down = compiler.joined(block.gate, block.up), compiler.compile(block.down)
    activation = block.activation
    join = runtime.fused(lambda gate, up: activation(gate) * up)
    if both is None:
        gate, up = compiler.compile(block.gate), compiler.compile(block.up)
        return lambda x: down(join(gate(x), up(x)))
    return lambda x: down(join(*mx.split(both(x), 2, axis=-1)))


@compiles(MoE, "__call__")
def moe(compiler: StepCompiler, block: MoE) -> Function | None:
    """(B, D) -> (B, D)."""
    router, experts = compiler.compile_if_known(block.router), compiler.compile_if_known(block.experts)
    if router is None or experts is None:
        return None
    shared = compiler.compile(block.shared) if "shared" in block else None
    gate = compiler.compile(block.shared_gate) if "shared_gate" in block else None

    def mix(x: mx.array) -> mx.array:
        indices, weights = router(x)  # (B, k) each
        y = (experts(x, indices) * weights[..., None]).sum(axis=-2)
        if shared is None:
            return y
        return y + (shared(x) if gate is None else shared(x) * mx.sigmoid(gate(x)))

    return mix


@compiles(Router, "__call__")
def router(compiler: StepCompiler, block: Router) -> Function:
    """(B, D) -> (B, k), (B, k)."""
    score, count, weigh = compiler.compile(block.scores), block.spec.top_k, block.weigh

    def choose(x: mx.array) -> tuple[mx.array, mx.array]:
        logits = score(x)  # (B, E)
        indices = top_k(logits, count)
        return indices, weigh(logits, indices)

    return choose


@compiles(Experts, "__call__", "run")
def experts(compiler: StepCompiler, block: Experts) -> Function:
    """(B, D), (B, k) -> (B, k, D); many rows are sorted by expert, as the block does."""
    gate, up, down = (compiler.compile_if_known(part) or part for part in (block.gate, block.up, block.down))
    join = block.join

    def run(x: mx.array, indices: mx.array) -> mx.array:
        if indices.size >= MANY:
            return block(x, indices)
        rows = mx.expand_dims(x, (-3, -2))  # (B, 1, 1, D) meets (B, k)
        return down(join(gate(rows, indices), up(rows, indices)), indices).squeeze(-2)

    return run


@compiles(StackedLinear, "__call__")
def stacked_linear(compiler: StepCompiler, layer: StackedLinear) -> Function:
    """(…, 1, in), (…) -> (…, 1, out)."""
    matrices, multiply = compiler.take(layer, "weight").swapaxes(-1, -2), runtime.gather_matmul
    mx.eval(matrices)
    if "bias" not in layer:
        return lambda x, indices: multiply(x, matrices, indices)
    bias = compiler.take(layer, "bias")
    return lambda x, indices: multiply(x, matrices, indices) + bias[indices][..., None, :]
