"""Feed-forward blocks, each token by itself, D -> hidden -> D, and mixtures of them.

`zoo.recipe.experts` has the contract of routers and experts. Axes: B batch, T length, D width, F hidden, E experts,
k experts of a token, N = B·T·k rows of work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe, runtime
from zoo.blocks.activation import activation
from zoo.blocks.quantized import (
    DequantizableLayer,
    QuantizedStack,
    quantize_arguments,
    wide,
)


class MLP(nn.Module):
    """down(activation(up(x))) (Vaswani et al., 2017, section 3.3)."""

    def __init__(self, spec: recipe.MLP, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.up = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.down(self.activation(self.up(x)))  # (B, T, F) between


class GatedMLP(nn.Module):
    """down(activation(gate(x)) · up(x)) (Shazeer, 2020, equation 6)."""

    joins = ("gate", "up")

    def __init__(self, spec: recipe.GatedMLP, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.up = nn.Linear(dim, spec.hidden, bias=spec.bias)
        self.down = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.down(self.activation(self.gate(x)) * self.up(x))  # (B, T, F) between


MANY = 64  # rows of work from which sorting them by expert pays: each expert's matrix is then read once


class Router(nn.Module):
    """The k likeliest of E experts, and their probabilities (Shazeer et al., 2017, section 2.1)."""

    def __init__(self, spec: recipe.Router, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.scores = nn.Linear(dim, spec.experts, bias=spec.bias)

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:  # (B, T, D) -> (B, T, k), (B, T, k)
        logits = self.scores(x)  # (B, T, E)
        indices = top_k(logits, self.spec.top_k)
        return indices, self.weigh(logits, indices)

    def weigh(self, logits: mx.array, indices: mx.array) -> mx.array:  # (B, T, E), (B, T, k) -> (B, T, k)
        """The weights of the chosen experts' outputs."""
        if self.spec.normalised:
            weights = mx.softmax(mx.take_along_axis(logits, indices, axis=-1), axis=-1, precise=True)
        else:
            weights = mx.take_along_axis(mx.softmax(logits, axis=-1, precise=True), indices, axis=-1)
        return weights if self.spec.scale == 1.0 else weights * self.spec.scale


def top_k(scores: mx.array, count: int) -> mx.array:  # (…, E) -> (…, count)
    """The indices of the `count` largest, in no order; no gradient flows through a choice."""
    if count == scores.shape[-1]:
        return mx.broadcast_to(mx.arange(count, dtype=mx.uint32), scores.shape)
    return mx.stop_gradient(mx.argpartition(-scores, kth=count - 1, axis=-1)[..., :count])


class StackedLinear(nn.Module):
    """E linear maps in one (E, out, in) `weight` and (E, out) `bias`: each row goes through the one it names."""

    quantized_extras = ("global_scale",)

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = mx.random.uniform(-bound, bound, (experts, outputs, inputs))
        if bias:
            self.bias = mx.zeros((experts, outputs))

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, in), (…) -> (…, 1, out)
        y = runtime.gather_matmul(x, self.weight.swapaxes(-1, -2), indices, in_order)
        return y + self.bias[indices][..., None, :] if "bias" in self else y

    def to_quantized(
        self, group_size: int | None = None, bits: int | None = None, mode: str = "affine"
    ) -> QuantizedStackedLinear:
        """The same with packed weights; `mlx.nn.quantize` asks for it."""
        return QuantizedStackedLinear(self, group_size, bits, mode)


class QuantizedStackedLinear(DequantizableLayer, QuantizedStack):
    """A stacked linear layer whose matrices stay packed; `global_scale` (E, out or 1), if any, multiplies outputs."""

    def __call__(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, in), (…) -> (…, 1, out)
        given = wide(x) if "global_scale" in self else x
        if (floats := self.kept()) is not None:
            y = runtime.gather_matmul(given, floats.swapaxes(-1, -2), indices, in_order)
        else:
            y = self._multiply_packed(given, indices, in_order)
        if "global_scale" in self:
            y = y * self.global_scale[indices][..., None, :]
        y = y.astype(x.dtype)
        return y + self.bias[indices][..., None, :] if "bias" in self else y

    def _multiply_packed(self, x: mx.array, indices: mx.array, in_order: bool) -> mx.array:
        if in_order:
            y = runtime.grouped_matmul(x, lambda part: self.floats(part).swapaxes(-1, -2), indices)
            if y is not None:
                return y
        parts, how = (self.weight, self.scales, self.get("biases")), quantize_arguments(self)
        return mx.gather_qmm(x, *parts, rhs_indices=indices, transpose=True, sorted_indices=in_order, **how)


class Experts(nn.Module):
    """Gated feed-forwards of which each token uses the k that its indices name."""

    def __init__(self, spec: recipe.Experts, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.first = getattr(spec, "first", None)  # a plugin's spec need not have it
        self.gate = StackedLinear(spec.count, dim, spec.hidden, spec.bias)
        self.up = StackedLinear(spec.count, dim, spec.hidden, spec.bias)
        self.down = StackedLinear(spec.count, spec.hidden, dim, spec.bias)
        self.activation = activation(spec.activation)

    def join(self, gate: mx.array, up: mx.array) -> mx.array:  # (…, F), (…, F) -> (…, F)
        """The input of the third projection, made of the outputs of the first two."""
        return self.activation(gate) * up

    def run(
        self, x: mx.array, indices: mx.array, in_order: bool = False
    ) -> mx.array:  # (…, 1, D), (…) -> (…, 1, D)
        """Each row through the expert it names; `in_order` when the rows are sorted by expert."""
        hidden = self.join(self.gate(x, indices, in_order), self.up(x, indices, in_order))  # (…, 1, F)
        return self.down(hidden, indices, in_order)

    def run_few(
        self, run: Callable[[mx.array, mx.array], mx.array], x: mx.array, indices: mx.array
    ) -> mx.array:  # (…, D), (…, k) -> (…, k, D)
        """`run` of fewer than `MANY` rows: each expert's matrix is read for each of its rows.

        Instead of an expert of another rank the token's last one here is computed, whose matrix is read anyway.
        """
        here = self.is_here(indices)
        if here is not None:
            numbers = mx.where(here, indices - self.first, 0)
            indices = mx.where(here, numbers, numbers.max(axis=-1, keepdims=True))
        y = run(mx.expand_dims(x, (-3, -2)), indices).squeeze(-2)  # (…, 1, 1, D) meets (…, k)
        return y if here is None else mx.where(here[..., None], y, 0)

    def is_here(self, indices: mx.array) -> mx.array | None:  # (…, k) -> (…, k)
        """Which experts this rank has; None where it has all of them."""
        if self.first is None:
            return None
        return (indices >= self.first) & (indices < self.first + self.spec.count)

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:  # (B, T, D), (B, T, k) -> (B, T, k, D)
        if indices.size < MANY:
            return self.run_few(self.run, x, indices)
        chosen, count = indices.flatten(), indices.size  # (N,)
        here = self.is_here(chosen)
        if here is not None:  # rows of other ranks' experts come last, and are not computed
            chosen = mx.where(here, chosen - self.first, self.spec.count)
            count = int(here.sum().item())
        if not count:
            return mx.zeros((*indices.shape, x.shape[-1]), x.dtype)
        order = mx.argsort(chosen)
        own = order[:count]
        rows = x.reshape(-1, 1, x.shape[-1])[own // indices.shape[-1]]  # (N, 1, D), by expert
        y = self.run(rows, chosen[own], in_order=True)
        if count < indices.size:
            y = mx.pad(y, ((0, indices.size - count), (0, 0), (0, 0)))
        return y[mx.argsort(order)].reshape(*indices.shape, -1)  # back in the tokens' order


class MoE(nn.Module):
    """Σ_k weights_k · experts(x)_k + shared(x), the last with a gate σ(w · x) in some families."""

    def __init__(
        self,
        spec: recipe.MoE,
        *,
        dim: int,
        index: int = 0,
        router: nn.Module,
        experts: nn.Module,
        shared: Any = None,
    ) -> None:
        super().__init__()
        self.router, self.experts, self.shared = router, experts, shared  # None is no part
        self.scales_inputs = spec.scales_inputs
        if spec.shared_gate:
            self.shared_gate = nn.Linear(dim, 1, bias=False)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        indices, weights = self.router(x)  # (B, T, k) each
        if self.scales_inputs:  # of each expert in another way: as many rows as experts used
            rows = (x[..., None, :] * weights[..., None]).flatten(-3, -2)  # (B, T·k, D)
            chosen = indices.flatten(-2)[..., None]  # (B, T·k, 1)
            y = self.experts(rows, chosen).reshape(*indices.shape, -1).sum(axis=-2)
        else:
            y = (self.experts(x, indices) * weights[..., None]).sum(axis=-2)
        if "shared" not in self:
            return y
        shared = self.shared(x)
        return y + (shared * mx.sigmoid(self.shared_gate(x)) if "shared_gate" in self else shared)
