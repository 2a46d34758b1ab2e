"""The blocks of Gemma 2 (Gemma Team, 2024).

Axes: B batch, T query length, S key length, D width, H heads, G key/value heads, K width of a head, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_gemma as specs
from zoo import runtime
from zoo.blocks.attention import Attention
from zoo.blocks.head import Head
from zoo.blocks.layer import CachedLayer
from zoo.blocks.mask import Mask, dense
from zoo.blocks.norm import RMSNorm
from zoo.compiled_step.blocks import head
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles


class OffsetRMSNorm(RMSNorm):
    """x / √(mean(x²) + eps) · (1 + weight); a weight of zero leaves the normalised features as they are."""

    def __init__(self, spec: specs.OffsetRMSNorm, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.weight = mx.zeros((dim,))

    @property
    def factor(self) -> mx.array:  # (D,)
        """1 + weight."""
        return 1.0 + super().factor


class SandwichLayer(CachedLayer):
    """Two residual sums, a norm before and after what each adds (section 2.1).

    x ─┬─ norm ─ mixer ─ norm ─ + ─┬─ norm ─ feed-forward ─ norm ─ + ─
       └─────────────────────── ┘  └────────────────────────────── ┘
    """

    def __init__(
        self,
        spec: specs.SandwichLayer,
        *,
        dim: int,
        index: int = 0,
        mixer_norm: nn.Module,
        mixer: nn.Module,
        mixer_output_norm: nn.Module,
        feedforward_norm: nn.Module,
        feedforward: nn.Module,
        feedforward_output_norm: nn.Module,
    ) -> None:
        super().__init__(spec, index)
        self.mixer_norm, self.mixer, self.mixer_output_norm = mixer_norm, mixer, mixer_output_norm
        self.feedforward_norm, self.feedforward = feedforward_norm, feedforward
        self.feedforward_output_norm = feedforward_output_norm

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.add("feedforward", self.add("mixer", x, mask, cache))

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum: x plus the output of the part of that name, called with `inputs`."""
        return x + self[f"{name}_output_norm"](self[name](self[f"{name}_norm"](x), *inputs))


def soft_cap(x: mx.array, cap: float) -> mx.array:
    """cap · tanh(x / cap), elementwise: near x while that is small, never beyond ±cap (section 2.1)."""
    return cap * mx.tanh(x / cap)


class CappedAttention(Attention):
    """softmax(soft_cap(Q Kᵀ · scale) + mask) V, written out, since no fused kernel caps scores."""

    spec: specs.CappedAttention

    def __init__(self, spec: specs.CappedAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.cap_scores = runtime.fused(partial(soft_cap, cap=spec.cap))

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, mask: Mask) -> mx.array:
        """(B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)."""
        batch, heads, length, width = queries.shape
        groups, seen = keys.shape[1], keys.shape[2]
        # The H/G queries that share a key stand in one long row: no key is repeated in memory.
        grouped = (queries * self.scale).reshape(batch, groups, -1, width)  # (B, G, H/G·T, K)
        scores = self.cap_scores(grouped @ keys.swapaxes(-1, -2))  # (B, G, H/G·T, S)
        scores = scores.reshape(batch, heads, length, seen)  # (B, H, T, S)
        visible = dense(mask, length, seen)
        if visible is not None:
            scores = mx.where(visible, scores, mx.finfo(scores.dtype).min)
        weights = mx.softmax(scores, axis=-1, precise=True).reshape(batch, groups, -1, seen)
        return (weights @ values).reshape(batch, heads, length, width)


class CappedHead(Head):
    """The logits of `Head`, soft-capped."""

    spec: specs.CappedHead

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, V)
        return soft_cap(super().__call__(x), self.spec.cap)


@compiles(SandwichLayer, "__call__", "add")
def step_of_sandwich(compiler: StepCompiler, block: SandwichLayer) -> Function:
    """One token of a layer with norms before and after each part: (B, D), mask, cache -> (B, D)."""
    mixer, feedforward = (step_of_sum(compiler, block, name) for name in ("mixer", "feedforward"))
    return lambda x, mask, cache: feedforward(mixer(x, mask, cache))


def step_of_sum(compiler: StepCompiler, block: SandwichLayer, name: str) -> Function:
    """One token of the residual sum of the part of that name: (B, D), the part's inputs -> (B, D)."""
    names = (f"{name}_norm", name, f"{name}_output_norm")
    norm, part, output_norm = (compiler.compile(block[each]) for each in names)
    return lambda x, *inputs: x + output_norm(part(norm(x), *inputs))


@compiles(CappedHead, "__call__")
def step_of_head(compiler: StepCompiler, block: CappedHead) -> Function | None:
    """Logits of one token, capped: (B, D) -> (B, V)."""
    logits, limit = head(compiler, block), runtime.fused(partial(soft_cap, cap=block.spec.cap))
    return None if logits is None else chained(logits, limit)
