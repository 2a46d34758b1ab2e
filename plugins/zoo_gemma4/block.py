"""The blocks of Gemma 4. Axes: B batch, T length, D width, H heads, G key/value heads, K width of a head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.feedforward import MoE, Router
from zoo.blocks.position import Scaling
from zoo.blocks.shared import KeyValueSource
from zoo.compiled_step.attention import attend_of
from zoo.compiled_step.blocks import router
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles
from zoo_gemma.block import SandwichLayer, step_of_sum
from zoo_gemma4 import specs


class ProportionalScaling(Scaling):
    """Pairs beyond the first `rotated` have a frequency of zero."""

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        return mx.array([1 / f if pair < self.spec.rotated else float("inf") for pair, f in enumerate(base)])


class ValueNormAttention(KeyValueSource):
    """Attention with x / √(mean(x²) + eps) of its values, which may be its keys before their norm and rotation."""

    spec: specs.ValueNormAttention

    def __init__(self, spec: specs.ValueNormAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        if spec.keys_as_values:
            del self.value

    @property
    def joins(self) -> tuple[str, ...]:  # type: ignore[override]
        """The projections that read the same input."""
        return ("query", "key") if self.spec.keys_as_values else ("query", "key", "value")

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """The queries (B, H, T, K), keys and values (B, G, T, K) of x (B, T, D), all of them normalised."""
        queries, keys = self.split(self.query(x), self.heads), self.split(self.key(x), self.kv_heads)
        values = keys if self.spec.keys_as_values else self.split(self.value(x), self.kv_heads)
        gain = mx.ones((self.head_dim,), values.dtype)
        return self.query_norm(queries), self.key_norm(keys), runtime.rms_norm(values, gain, self.spec.eps)


class ScaledRouter(Router):
    """A router that normalises its input, and multiplies each routing weight by its expert's learned scale."""

    spec: specs.ScaledRouter

    def __init__(self, spec: specs.ScaledRouter, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.gain, self.expert_scale = mx.ones((dim,)), mx.ones((spec.experts,))

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:  # (B, T, D) -> (B, T, k), (B, T, k)
        return super().__call__(runtime.rms_norm(x, self.gain * x.shape[-1] ** -0.5, self.spec.eps))

    def weigh(self, logits: mx.array, indices: mx.array) -> mx.array:  # (B, T, E), (B, T, k) -> (B, T, k)
        """The routing weights of the chosen experts, each times the expert's learned scale."""
        return super().weigh(logits, indices) * self.expert_scale[indices]


class NormedMoE(MoE):
    """Σ_k weights_k · experts(norm(x))_k; the router reads x itself."""

    def __init__(self, spec: specs.NormedMoE, *, experts_norm: nn.Module, **parts: Any) -> None:
        super().__init__(spec, **parts)
        self.experts_norm = experts_norm

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        indices, weights = self.router(x)  # (B, T, k) each
        return (self.experts(self.experts_norm(x), indices) * weights[..., None]).sum(axis=-2)


EXTRA = ("layer_input", "layer_input_norm", "mixture", "dense_output_norm", "mixture_output_norm")


class ScaledSandwichLayer(SandwichLayer):
    """The output of a sandwich layer, and of what its own input adds, times a learned number."""

    def __init__(self, spec: specs.ScaledSandwichLayer, **parts: Any) -> None:
        super().__init__(spec, **{name: part for name, part in parts.items() if name not in EXTRA})
        for name in EXTRA:
            setattr(self, name, parts.get(name))  # None is no part
        self.scalar = mx.ones((1,))
        self._passes = bool(spec.mixer.gives or spec.mixer.takes)

    def __call__(  # type: ignore[override]
        self, x: mx.array, mask: Any = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        x = self.add("mixer", x, mask, cache, *((passed,) if self._passes else ()))
        x = self.add("feedforward", x)
        if "layer_input" in self:
            x = x + self["layer_input_norm"](self["layer_input"](x, passed))
        return x * self.scalar

    def add(self, name: str, x: mx.array, *inputs: Any) -> mx.array:  # (B, T, D) -> (B, T, D)
        """One residual sum; that of the feed-forward takes the mixture, too."""
        if name != "feedforward" or "mixture" not in self:
            return super().add(name, x, *inputs)
        dense = self["dense_output_norm"](self.feedforward(self.feedforward_norm(x)))
        both = dense + self["mixture_output_norm"](self["mixture"](x))
        return x + self.feedforward_output_norm(both)


@compiles(ScaledRouter, "__call__", "weigh")
def step_of_router(compiler: StepCompiler, block: ScaledRouter) -> Function | None:
    """(B, D) -> (B, k), (B, k)."""
    gain, choose = compiler.take(block, "gain") * block.gain.size**-0.5, router(compiler, block)
    compiler.take(block, "expert_scale")
    return None if choose is None else chained(runtime.step.rms_norm(gain, block.spec.eps), choose)


@compiles(NormedMoE, "__call__")
def step_of_mixture(compiler: StepCompiler, block: NormedMoE) -> Function | None:
    """(B, D) -> (B, D)."""
    choose, experts = (compiler.compile_if_known(part) for part in (block.router, block.experts))
    norm = compiler.compile(block.experts_norm)
    if choose is None or experts is None:
        return None

    def mix(x: mx.array) -> mx.array:
        indices, weights = choose(x)  # (B, k) each
        y: mx.array = (experts(norm(x), indices) * weights[..., None]).sum(axis=-2)
        return y

    return mix


@compiles(ValueNormAttention, "__call__", "attend", "mix_cached", "project", "split", "merge", "rotate")
def step_of_attention(compiler: StepCompiler, block: ValueNormAttention) -> Function | None:
    """(B, D), mask, cache, values handed on -> (B, D)."""
    if block.rope is None or "query_norm" not in block or "key_norm" not in block:
        return None
    same, heads, groups, width = block.spec.keys_as_values, block.heads, block.kv_heads, block.head_dim
    layers = [block[name] for name in block.joins]
    joined, apart = compiler.joined(*layers), [compiler.compile(layer) for layer in layers]
    query_norm, key_norm = compiler.compile(block.query_norm), compiler.compile(block.key_norm)
    rotate = compiler.compile_if_known(block.rope) or block.rope
    value_norm = runtime.step.rms_norm(mx.ones((width,), block.key_norm.weight.dtype), block.spec.eps)

    def heads_of(x: mx.array, offset: Any) -> tuple[mx.array, mx.array, mx.array]:
        if joined is None:
            parts = [layer(x).reshape(x.shape[0], -1, 1, width) for layer in apart]
        else:
            parts = mx.split(
                joined(x).reshape(x.shape[0], -1, 1, width), [heads, heads + groups][: len(apart) - 1], 1
            )
        queries, keys, values = (*parts, parts[1]) if same else parts
        return rotate(query_norm(queries), offset), rotate(key_norm(keys), offset), value_norm(values)

    attend = attend_of(compiler, block, heads_of, block.spec.shares)
    return None if attend is None else chained(attend, compiler.compile(block.output))


@compiles(ScaledSandwichLayer, "__call__", "add")
def step_of_scaled(compiler: StepCompiler, block: ScaledSandwichLayer) -> Function:
    """One token of such a layer: (B, D), mask, cache, values handed on -> (B, D)."""
    scalar, mixer = compiler.take(block, "scalar"), step_of_sum(compiler, block, "mixer")
    both = step_of_both if "mixture" in block else partial(step_of_sum, name="feedforward")
    feedforward = both(compiler, block)
    if "layer_input" not in block:
        return lambda x, mask, cache, *passed: feedforward(mixer(x, mask, cache, *passed)) * scalar
    own, norm = (compiler.compile(block[name]) for name in EXTRA[:2])

    def step(x: mx.array, mask: Any, cache: Any, passed: dict[str, Any]) -> mx.array:
        x = feedforward(mixer(x, mask, cache, passed))
        return (x + norm(own(x, passed))) * scalar

    return step


def step_of_both(compiler: StepCompiler, block: ScaledSandwichLayer) -> Function:
    """One token of a dense feed-forward and a mixture beside it: (B, D) -> (B, D)."""
    names = ("feedforward_norm", "feedforward", "dense_output_norm")
    norm, part, dense_norm = (compiler.compile(block[name]) for name in names)
    names = ("mixture", "mixture_output_norm", "feedforward_output_norm")
    mixture, mixture_norm, output_norm = (compiler.compile(block[name]) for name in names)
    return lambda x: x + output_norm(dense_norm(part(norm(x))) + mixture_norm(mixture(x)))
