"""Embeddings, layers, norms, positions, feed-forwards, mixtures and heads as functions, for one token a row.

Axes: B batch, D width, F hidden, E experts, k experts of a token, H heads, G key/value heads, K width of a head, S keys or
source, V vocabulary, P positions.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.embedding import Embedding
from zoo.blocks.feedforward import MANY, MLP, Experts, GatedMLP, MoE, Router, StackedLinear, top_k
from zoo.blocks.head import Head
from zoo.blocks.layer import CrossLayer, Layer
from zoo.blocks.norm import LayerNorm, PlainRMSNorm, RMSNorm
from zoo.blocks.position import RoPE, SinusoidalPositions
from zoo.blocks.quantized import QuantizedEmbedding
from zoo.blocks.ranked import Elsewhere
from zoo.blocks.shared import PER_LAYER, PerLayerInput
from zoo.cache import CrossCache
from zoo.compiled_step.compiler import Function, StepCompiler, adding, chained, compiles, has_methods_of


@compiles(RMSNorm, "__call__")
def rms_norm(compiler: StepCompiler, norm: RMSNorm) -> Function:
    """(…, D) -> (…, D)."""
    compiler.take(norm, "weight")
    return runtime.step.rms_norm(norm.factor, norm.eps)


@compiles(PlainRMSNorm, "__call__")
def plain_rms_norm(compiler: StepCompiler, norm: PlainRMSNorm) -> Function:
    """(…, D) -> (…, D)."""
    return norm


@compiles(LayerNorm, "__call__")
def layer_norm(compiler: StepCompiler, norm: LayerNorm) -> Function:
    """(…, D) -> (…, D)."""
    bias = compiler.take(norm, "bias") if "bias" in norm else None
    return runtime.step.layer_norm(compiler.take(norm, "weight"), bias, norm.eps)


@compiles(RoPE, "__call__")
def rope(compiler: StepCompiler, rope: RoPE) -> Function | None:
    """(B, H, 1, K), the position of each row -> (B, H, 1, K); where the angles depend on the position alone."""
    if rope.depends_on_length or rope.magnitude != 1.0:
        return None
    dims, interleaved, wavelengths = rope.dims, rope.interleaved, rope._wavelengths
    base = rope.theta if wavelengths is None else None

    def by_kernel(x: mx.array, offset: Any) -> mx.array:
        return mx.fast.rope(
            x, dims, traditional=interleaved, base=base, scale=1.0, offset=offset, freqs=wavelengths
        )

    if interleaved:
        return by_kernel
    key = ("rotation", dims, base, None if wavelengths is None else tuple(wavelengths.tolist()))
    by_operations = compiler.shared(key, lambda: runtime.step.rotation(rope.frequencies))
    if by_operations is None:
        return by_kernel

    def rotate(x: mx.array, offset: Any) -> mx.array:
        if x.shape[-1] == dims and x.dtype == mx.float32:
            return by_operations(x, offset)
        return by_kernel(x, offset)

    return rotate


@compiles(MLP, "__call__")
def feedforward(compiler: StepCompiler, block: MLP) -> Function:
    """(B, D) -> (B, D)."""
    up, down, activation = compiler.compile(block.up), compiler.compile(block.down), block.activation
    return chained(lambda x: activation(up(x)), down)


@compiles(GatedMLP, "__call__")
def gated_feedforward(compiler: StepCompiler, block: GatedMLP) -> Function:
    """(B, D) -> (B, D)."""
    both, down = compiler.joined(block.gate, block.up), compiler.compile(block.down)
    activation = block.activation
    join = runtime.fused(lambda gate, up: activation(gate) * up)
    if both is None:
        gate, up = compiler.compile(block.gate), compiler.compile(block.up)
        return chained(lambda x: join(gate(x), up(x)), down)
    return chained(lambda x: join(*mx.split(both(x), 2, axis=-1)), down)


@compiles(MoE, "__call__")
def moe(compiler: StepCompiler, block: MoE) -> Function | None:
    """(B, D) -> (B, D)."""
    router, experts = compiler.compile_if_known(block.router), compiler.compile_if_known(block.experts)
    if router is None or experts is None:
        return None
    shared = compiler.compile(block.shared) if "shared" in block else None
    gate = compiler.compile(block.shared_gate) if "shared_gate" in block else None
    scales_inputs = block.scales_inputs

    def mix(x: mx.array) -> mx.array:
        indices, weights = router(x)  # (B, k) each
        if scales_inputs:
            rows = (x[:, None] * weights[..., None]).reshape(-1, x.shape[-1])  # (B·k, D)
            y = experts(rows, indices.reshape(-1, 1)).reshape(*indices.shape, -1).sum(axis=-2)
        else:
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

    def run(rows: mx.array, indices: mx.array) -> mx.array:  # (B, 1, 1, D), (B, k) -> (B, k, 1, D)
        return down(join(gate(rows, indices), up(rows, indices)), indices)

    return lambda x, indices: block(x, indices) if indices.size >= MANY else block.run_few(run, x, indices)


@compiles(StackedLinear, "__call__")
def stacked_linear(compiler: StepCompiler, layer: StackedLinear) -> Function:
    """(…, 1, in), (…) -> (…, 1, out)."""
    matrices, multiply = compiler.take(layer, "weight").swapaxes(-1, -2), runtime.gather_matmul
    mx.eval(matrices)
    if "bias" not in layer:
        return lambda x, indices: multiply(x, matrices, indices)
    bias = compiler.take(layer, "bias")
    return lambda x, indices: multiply(x, matrices, indices) + bias[indices][..., None, :]


@compiles(PerLayerInput, "__call__")
def per_layer_input(compiler: StepCompiler, block: PerLayerInput) -> Function:
    """(B, D), values handed on -> (B, D)."""
    gate, activation, index = compiler.compile(block.gate), block.activation, block.index
    return chained(
        lambda x, passed: activation(gate(x)) * passed[PER_LAYER][:, 0, index], compiler.compile(block.output)
    )


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


@compiles(Elsewhere, "__call__")
def elsewhere(compiler: StepCompiler, layer: Elsewhere) -> Function:
    """(B, D), mask, cache -> (B, D): what comes in goes out."""
    return lambda x, mask, cache: x


def _sum(compiler: StepCompiler, block: Layer, name: str) -> Function:
    """x plus the output of one part, with its norm: x (B, D) and the other inputs of the part -> (B, D)."""
    part, norm = _scaled(compiler.compile(block[name]), block.residual_scale), _norm(compiler, block, name)
    add = adding(part)
    if norm is None:
        return lambda x, *inputs: add(x, x, *inputs)
    if block.placement == "pre":
        return lambda x, *inputs: add(x, norm(x), *inputs)
    return lambda x, *inputs: norm(add(x, x, *inputs))


def _both(compiler: StepCompiler, block: Layer) -> Function:
    """x plus the outputs of mixer and feed-forward of a parallel layer: x (B, D), mask, cache -> (B, D)."""
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


ROWS = 256  # of a table of positions, at first


@compiles(Embedding, "__call__")
def embedding(compiler: StepCompiler, block: Embedding) -> Function | None:
    """(B, 1), the position of each row -> (B, D): with sinusoids that are computed once."""
    if "positions" not in block or not has_methods_of(block.positions, SinusoidalPositions, "__call__"):
        return None
    waves, positions = _Waves(block.positions), block.positions
    norm = compiler.compile(block.norm) if "norm" in block else None

    def step(tokens: mx.array, offset: int | mx.array) -> mx.array:
        x = mx.squeeze(block.vectors(tokens), 1)
        found = waves(offset) if isinstance(offset, int) else mx.squeeze(positions(1, offset), -2)
        x = x + found.astype(x.dtype)
        return x if norm is None else norm(x)

    return step


class _Waves:
    """Sines and cosines of positions, computed once: a table (P, D) that grows with the text."""

    def __init__(self, positions: nn.Module) -> None:
        self._positions, self._table, self._rows = positions, mx.zeros((0,)), 0

    def __call__(self, position: int) -> mx.array:  # -> (D,)
        if position >= self._rows:
            self._rows = max(ROWS, 2 * position)
            self._table = self._positions(self._rows)
            mx.eval(self._table)
        return self._table[position]


@compiles(Head, "__call__")
def head(compiler: StepCompiler, block: Head) -> Function:
    """(B, D) -> (B, V)."""
    multiply, scale = _logits(compiler, block), block.spec.scale
    return multiply if scale == 1.0 else lambda x: multiply(x * scale)


def _logits(compiler: StepCompiler, block: Head) -> Function:
    """(B, D) -> (B, V), by a matrix of its own or the embedding's table."""
    if block.embedding is None:
        return compiler.compile(block.output)
    table = _table(block.embedding)
    bias = compiler.take(block, "bias") if "bias" in block else None
    if type(table) is nn.Embedding or (type(table) is QuantizedEmbedding and table.kept() is not None):
        return compiler.product(table, bias)
    multiply = block.embedding.as_linear
    return multiply if bias is None else lambda x: multiply(x) + bias


def _table(block: nn.Module) -> nn.Module | None:
    """The table that a tied head multiplies by; None where a subclass of `Embedding` has a way of its own."""
    if not has_methods_of(block, Embedding, "as_linear", "owner"):
        return None
    owner = block.owner
    return owner.tokens if has_methods_of(owner, Embedding, "as_linear") else None
