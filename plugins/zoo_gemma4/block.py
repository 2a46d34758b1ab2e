"""The blocks of Gemma 4. Axes: B batch, T length, D width, H heads, G key/value heads, K width of a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_gemma4 as specs
from zoo import runtime
from zoo.blocks.position import Scaling
from zoo.blocks.shared import KeyValueSource
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles
from zoo_gemma.block import SandwichLayer, step_of_sandwich


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


class ScaledSandwichLayer(SandwichLayer):
    """The output of a sandwich layer, and of what its own input adds, times a learned number."""

    def __init__(
        self,
        spec: specs.ScaledSandwichLayer,
        layer_input: nn.Module | None = None,
        layer_input_norm: nn.Module | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(spec, **parts)
        self.layer_input, self.layer_input_norm = layer_input, layer_input_norm  # None is no part
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


@compiles(ScaledSandwichLayer, "__call__", "add")
def step_of_scaled(compiler: StepCompiler, block: ScaledSandwichLayer) -> Function | None:
    """One token of such a layer: (B, D), mask, cache -> (B, D)."""
    layer, scalar = step_of_sandwich(compiler, block), compiler.take(block, "scalar")
    return None if layer is None else chained(layer, lambda x: x * scalar)
