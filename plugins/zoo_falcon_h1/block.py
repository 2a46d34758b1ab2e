"""The layer of Falcon-H1 and its two scaled parts. Axes: B batch, T length, D width, H heads, P width of a head, E channels."""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.feedforward import GatedMLP
from zoo.blocks.layer import CachedLayer
from zoo.compiled_step.compiler import Function, StepCompiler, adding, compiles
from zoo_falcon_h1 import specs
from zoo_mamba2.block import StateSpace


class ParallelMixers(CachedLayer):
    """Two residual sums: of both mixers, which read the same, and of the feed-forward (section 2.1).

           ┌─ mixer ──┐
    x ─┬─ norm        + ─ + ─┬─ norm ─ feed-forward ─ + ─
       │   └─ memory ─┘   │  └─────────────────────── ┘
       └───────────────── ┘
    """

    spec: specs.ParallelMixers

    def __init__(self, spec: specs.ParallelMixers, *, dim: int, index: int = 0, **parts: nn.Module) -> None:
        super().__init__(spec, index)
        self.mixer_norm, self.mixer, self.memory = (parts[name] for name in ("mixer_norm", "mixer", "memory"))
        self.feedforward_norm, self.feedforward = parts["feedforward_norm"], parts["feedforward"]

    def __call__(self, x: mx.array, mask: Any, cache: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """`mask` and `cache` are by part."""
        return self.add("feedforward", self.add("mixer", x, mask, cache))

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """The residual sum of a part: "mixer" (both mixers added) or "feedforward"."""
        return x + (self.mixed(x, *inputs) if name == "mixer" else self.feedforward(self.feedforward_norm(x)))

    def mixed(self, x: mx.array, mask: Any, cache: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """What both mixers add, each with its input and output scaled."""
        h, spec = self.mixer_norm(x), self.spec
        seen = self.mixer(h * spec.mixer_scales[0], mask["mixer"], cache["mixer"])
        kept = self.memory(h * spec.memory_scales[0], mask["memory"], cache["memory"])
        return seen * spec.mixer_scales[1] + kept * spec.memory_scales[1]


class ScaledStateSpace(StateSpace):
    """Mamba-2's mixer, each of its five projections multiplied by its number."""

    spec: specs.ScaledStateSpace

    def scaled(self, projections: mx.array) -> mx.array:  # (…, H·P + E + H) -> (…, H·P + E + H)
        """Multiply each projection by its scale from the spec."""
        spec, shared = self.spec, self.spec.groups * self.spec.state
        factors = repeat(tuple(spec.scales), (spec.inner, spec.inner, shared, shared, spec.heads))
        return projections * factors.astype(projections.dtype)

    @property
    def norm_first(self) -> bool:
        """Whether the norm comes before the gate, as the spec says."""
        return self.spec.eps is not None and self.spec.norm_first


@cache
def repeat(numbers: tuple[float, ...], counts: tuple[int, ...]) -> mx.array:
    """A vector in which each number is repeated as often as its count says."""
    return mx.array([number for number, count in zip(numbers, counts, strict=True) for _ in range(count)])


class ScaledMLP(GatedMLP):
    """down(activation(gate(x) · scales₀) · up(x)) · scales₁."""

    def __init__(self, spec: specs.ScaledMLP, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.scales = spec.scales

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        hidden = self.activation(self.gate(x) * self.scales[0]) * self.up(x)
        return self.down(hidden) * self.scales[1]


@compiles(ParallelMixers, "__call__", "add", "mixed")
def step_of_layer(compiler: StepCompiler, block: ParallelMixers) -> Function:
    """Compiled decode step of a layer with two mixers: (B, D), a mask and a cache for each mixer -> (B, D)."""
    mixer, memory, feedforward, first, second = (
        compiler.compile(block[name])
        for name in ("mixer", "memory", "feedforward", "mixer_norm", "feedforward_norm")
    )
    (mixer_in, mixer_out), (memory_in, memory_out) = block.spec.mixer_scales, block.spec.memory_scales
    scale = runtime.fused(lambda h: (h * mixer_in, h * memory_in))
    add = runtime.fused(lambda x, seen, kept: x + (seen * mixer_out + kept * memory_out))
    add_feedforward = adding(feedforward)

    def step(x: mx.array, mask: Any, cache: Any) -> mx.array:
        seen, kept = scale(first(x))
        x = add(x, mixer(seen, mask["mixer"], cache["mixer"]), memory(kept, mask["memory"], cache["memory"]))
        return add_feedforward(x, second(x))  # type: ignore[no-any-return]

    return step


@compiles(ScaledMLP, "__call__")
def step_of_feedforward(compiler: StepCompiler, block: ScaledMLP) -> Function:
    """One token of the scaled feed-forward: (B, D) -> (B, D)."""
    both, down = compiler.joined(block.gate, block.up), compiler.compile(block.down)
    gate, up = compiler.compile(block.gate), compiler.compile(block.up)
    activation, (gate_scale, scale) = block.activation, block.scales
    join = runtime.fused(lambda gate, up: activation(gate * gate_scale) * up)

    def step(x: mx.array) -> mx.array:
        halves = (gate(x), up(x)) if both is None else mx.split(both(x), 2, axis=-1)
        return down(join(*halves)) * scale  # type: ignore[no-any-return]

    return step
