"""MiniMax-01's blocks. Axes: B batch, T length, D width, H heads, K width of a head."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.convolution import tokens_only
from zoo.blocks.layer import Layer
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.compiler import Function, StepCompiler, compiles
from zoo.compiled_step.convolution import stepping
from zoo_mamba2.block import scan
from zoo_minimax import text01 as specs


class LightningAttention(nn.Module):
    """output(σ(gate(x)) · norm(linear attention whose states decay))."""

    joins = ("query", "key", "value", "gate")

    def __init__(self, spec: specs.LightningAttention, *, dim: int, index: int = 0, norm: nn.Module) -> None:
        super().__init__()
        self.spec, self.index, self.norm = spec, index, norm
        inner = spec.heads * spec.head_dim
        self.query, self.key, self.value = (nn.Linear(dim, inner, bias=False) for _ in range(3))
        self.gate, self.output = nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False)
        self.activation = activation(spec.activation)

    @property
    def rate(self) -> mx.array:  # (H,)
        """The log of the factor by which each head's state decays with each token."""
        share = 1 - self.index / (self.spec.depth - 1 + 1e-5) + 1e-5
        return -share * 2.0 ** (-8 * mx.arange(1, self.spec.heads + 1) / self.spec.heads)

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the states."""
        return StateCache(1, policy)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: StateCache | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D); mask (B, T)
        (batch, length, _), state = x.shape, None if cache is None else cache[0]
        queries, keys, values = self.project(x)
        # Padding neither decays the state nor writes into it.
        rate = tokens_only(mx.broadcast_to(self.rate, (batch, length, self.spec.heads)), mask).swapaxes(1, 2)
        values = values if mask is None else mx.where(mask[:, None, :, None], values, 0)
        y, state = self.scan(queries, keys, values, rate, state)
        if cache is not None:
            cache[0] = state
            cache.advance(length)
        y = self.norm(y.swapaxes(1, 2).reshape(batch, length, -1).astype(x.dtype))
        return self.output(self.activate_gate(self.gate(x)) * y)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys and values (B, H, T, K) in float32: (B, T, D) ->."""
        parts = (self.activation(layer(x)).astype(mx.float32) for layer in (self.query, self.key, self.value))
        queries, keys, values = (
            part.reshape(*x.shape[:2], self.spec.heads, -1).swapaxes(1, 2) for part in parts
        )
        return queries, keys, values

    def scan(
        self, queries: mx.array, keys: mx.array, values: mx.array, rate: mx.array, state: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """The output of each head, (B, H, T, K), and the last state of each head, transposed: (B, H, K, K)."""
        return scan(values, rate, keys, queries, state)

    def activate_gate(self, gate: mx.array) -> mx.array:  # (B, T, H·K) -> (B, T, H·K)
        """The output gate, between 0 and 1."""
        return mx.sigmoid(gate)


class NormedStreamLayer(Layer):
    """Two residual sums, α · h + β · f(h), with h = norm(x).

    x ─ norm ─┬─ mixer ─ + ─ norm ─┬─ feed-forward ─ + ─
              └───────── ┘         └──────────────── ┘
    """

    spec: specs.NormedStreamLayer

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum."""
        h, alpha, beta = self.normed(name, x), *factors(self.spec, name)
        return alpha * h + beta * self.run(name, h, *inputs)


def factors(spec: specs.NormedStreamLayer, name: str) -> tuple[float, float]:
    """The factors of a residual sum: α of the normalised stream, β of the part's output."""
    return getattr(spec, f"{name}_alpha"), getattr(spec, f"{name}_beta")


@compiles(NormedStreamLayer, "__call__", "add", "normed", "run")
def step_of_layer(compiler: StepCompiler, block: NormedStreamLayer) -> Function:
    """Compiled decode step of the layer: (B, D), mask, cache -> (B, D)."""

    def compile_sum(name: str) -> Function:
        norm, part = compiler.compile(block[f"{name}_norm"]), compiler.compile(block[name])
        alpha, beta = factors(block.spec, name)

        def add(x: mx.array, *inputs: Any) -> mx.array:
            h = norm(x)
            y: mx.array = alpha * h + beta * part(h, *inputs)
            return y

        return add

    mixer, feedforward = compile_sum("mixer"), compile_sum("feedforward")
    return lambda x, mask, cache: feedforward(mixer(x, mask, cache))


@compiles(LightningAttention, "__call__", "project", "scan", "activate_gate")
def step_of_mixer(compiler: StepCompiler, block: LightningAttention) -> Function:
    """Compiled decode step of lightning attention: (B, D), mask, cache -> (B, D)."""
    layers, heads = [block[name] for name in block.joins], block.spec.heads
    joined, apart = compiler.joined(*layers), [compiler.compile(layer) for layer in layers]
    norm, output, activate = compiler.compile(block.norm), compiler.compile(block.output), block.activation
    left = mx.exp(block.rate)[:, None, None]
    mx.eval(left)

    def step(x: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
        both = joined(x) if joined else mx.concatenate([layer(x) for layer in apart], axis=-1)
        mixed, gate = mx.split(both, [3 * both.shape[-1] // 4], axis=-1)
        parts = activate(mixed).astype(mx.float32).reshape(x.shape[0], 3, heads, 1, -1)
        queries, keys, values = (part[:, 0] for part in mx.split(parts, 3, axis=1))  # (B, H, 1, K)
        state = left * state + values.swapaxes(-1, -2) * keys
        y = (queries @ state.swapaxes(-1, -2)).reshape(x.shape[0], -1).astype(x.dtype)
        return output(mx.sigmoid(gate) * norm(y)), state

    return stepping(block, step)
