"""The blocks of Gemma 3n. Axes: B batch, T length, D width, F hidden, N residual streams."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_gemma3n as specs
from zoo.blocks.feedforward import GatedMLP
from zoo.blocks.layer import CachedLayer
from zoo.blocks.shared import PerLayerEmbedding
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles
from zoo_gemma.block import step_of_sum
from zoo_gemma3n import STREAMS


def magnitude(x: mx.array, least: float = 0.0) -> mx.array:  # (…, D) -> (…, 1)
    """√(mean(x²)), the mean at least `least`."""
    return mx.sqrt(mx.maximum(mx.square(x).mean(axis=-1, keepdims=True), least))


def project_streams(layers: list[nn.Module], streams: list[mx.array], like: mx.array) -> list[mx.array]:
    """Each stream (B, T, D) projected by its layer and scaled to the magnitude of `like`, (B, T, D)."""
    projected = [layer(x) for layer, x in zip(layers, streams, strict=True)]
    return [y * magnitude(like) / magnitude(y, 1e-5) for y in projected]


class AltUpEmbedding(PerLayerEmbedding):
    """The vectors of tokens; it gives the inputs of each layer and the other streams, (B, T, N − 1, D)."""

    def __init__(self, spec: specs.AltUpEmbedding, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.streams = [nn.Linear(dim, dim, bias=False) for _ in range(spec.inputs - 1)]

    def __call__(  # type: ignore[override]
        self, tokens: mx.array, offset: int | mx.array, passed: dict[str, Any]
    ) -> mx.array:  # (B, T) -> (B, T, D)
        x = super().__call__(tokens, offset, passed)
        others = project_streams(self.streams, [x] * len(self.streams), x)
        passed[STREAMS] = mx.stack(others, axis=-2) if others else mx.zeros((*x.shape[:2], 0, x.shape[2]))
        return x


class StreamMean(nn.Module):
    """The mean of the first stream and of the others, projected and scaled to its magnitude."""

    def __init__(self, spec: specs.StreamMean, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.streams = [nn.Linear(dim, dim, bias=False) for _ in range(spec.inputs - 1)]

    def __call__(self, streams: mx.array) -> mx.array:  # (B, T, N, D) -> (B, T, D)
        first, *others = (streams[:, :, index] for index in range(streams.shape[2]))
        return mx.stack([first, *project_streams(self.streams, others, first)]).mean(axis=0)


class AltUp(nn.Module):
    """`predict` and `correct` streams (B, T, N, D)."""

    def __init__(self, spec: specs.AltUp, *, dim: int, index: int = 0, router_norm: nn.Module) -> None:
        super().__init__()
        count = spec.inputs
        self.router_norm = router_norm
        self.router = nn.Linear(dim, count, bias=False)
        self.prediction = nn.Linear(count, count**2, bias=False)
        self.correction = nn.Linear(count, count, bias=False)
        self.scale = mx.zeros((dim,))

    def route(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, N)
        """tanh(router(norm(x) / D)), the hyperbolic tangent in float32."""
        routed = self.router(self.router_norm(x) * (1 / x.shape[-1]))
        return mx.tanh(routed.astype(mx.float32)).astype(x.dtype)

    def predict(self, streams: mx.array) -> mx.array:
        """The streams plus their combinations, with coefficients (N, N) by the first: (B, T, N, D) -> (B, T, N, D)."""
        count = streams.shape[2]
        weights = self.prediction(self.route(streams[:, :, 0])).reshape(*streams.shape[:2], count, count)
        return streams + weights @ streams

    def correct(self, predictions: mx.array, x: mx.array) -> mx.array:
        """The predictions plus a share of how far x (B, T, D) is from the first: (B, T, N, D) -> (B, T, N, D)."""
        shares = self.correction(self.route(x)) + 1  # (B, T, N)
        return predictions + shares[..., None] * (x - predictions[:, :, 0])[:, :, None]


class Laurel(nn.Module):
    """x + norm(right(left(x)))."""

    def __init__(self, spec: specs.Laurel, *, dim: int, index: int = 0, norm: nn.Module) -> None:
        super().__init__()
        self.left = nn.Linear(dim, spec.rank, bias=False)
        self.right = nn.Linear(spec.rank, dim, bias=False)
        self.norm = norm

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return x + self.norm(self.right(self.left(x)))


class SparseGatedMLP(GatedMLP):
    """down(activation(relu(gate(x) − cut)) · up(x)); the cut is mean + deviation · Φ⁻¹(sparsity) of a token's gate."""

    def __init__(self, spec: specs.SparseGatedMLP, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.deviations = NormalDist().inv_cdf(spec.sparsity)

    def __call__(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.down(self.cut_gate(self.gate(x)) * self.up(x))

    def cut_gate(self, gate: mx.array) -> mx.array:  # (…, F) -> (…, F)
        """activation(relu(gate − cut)): all but the largest gate values become zero."""
        cut = gate.mean(axis=-1, keepdims=True) + self.deviations * mx.sqrt(gate.var(axis=-1, keepdims=True))
        return self.activation(mx.maximum(gate - cut, 0))


class AltUpLayer(CachedLayer):
    """The first stream (B, T, D) goes through the layer; the others are in `passed`."""

    def __init__(
        self, spec: specs.AltUpLayer, *, dim: int, index: int = 0, **parts: nn.Module | None
    ) -> None:
        super().__init__(spec, index)
        for name, part in parts.items():
            setattr(self, name, part)
        self._passes = bool(spec.mixer.gives or spec.mixer.takes)

    def __call__(
        self, x: mx.array, mask: Any = None, cache: Any = None, passed: dict[str, Any] | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        assert passed is not None
        streams = mx.concatenate([x[:, :, None], passed[STREAMS]], axis=2)  # (B, T, N, D)
        predictions = self.altup.predict(streams)
        x = predictions[:, :, 0]
        normed = self.mixer_norm(x)
        mixed = self.mixer(normed, mask, cache, *((passed,) if self._passes else ()))
        x = (x + self.mixer_output_norm(mixed) + self.laurel(normed)) * 2**-0.5
        x = x + self.feedforward_output_norm(self.feedforward(self.feedforward_norm(x)))
        corrected = self.altup.correct(predictions, x)
        first, others = corrected[:, :, 0], corrected[:, :, 1:]
        added = self.layer_input_norm(self.layer_input(first * self.altup.scale, passed))  # (B, T, D)
        passed[STREAMS] = others = others + added[:, :, None]
        return self.merge(mx.concatenate([first[:, :, None], others], axis=2)) if "merge" in self else first


@compiles(SparseGatedMLP, "__call__")
def step_of_feedforward(compiler: StepCompiler, block: SparseGatedMLP) -> Function:
    """(B, D) -> (B, D)."""
    gate, up, down = (compiler.compile(part) for part in (block.gate, block.up, block.down))
    return chained(lambda x: block.cut_gate(gate(x)) * up(x), down)


@compiles(AltUpLayer, "__call__")
def step_of_layer(compiler: StepCompiler, block: AltUpLayer) -> Function:
    """Compiled decode step of the layer: (B, D), mask, cache, values handed on -> (B, D)."""
    mixer, feedforward = (step_of_sum(compiler, block, name) for name in ("mixer", "feedforward"))
    altup, laurel, merge = block.altup, compiler.compile(block.laurel), block.get("merge")
    names = ("mixer_norm", "layer_input", "layer_input_norm")
    norm, layer_input, layer_input_norm = (compiler.compile(block[name]) for name in names)
    passes = block._passes

    def step(x: mx.array, mask: Any, cache: Any, passed: dict[str, Any]) -> mx.array:
        predictions = altup.predict(
            mx.concatenate([x[:, None, None], passed[STREAMS]], axis=2)
        )  # (B, 1, N, D)
        x = predictions[:, 0, 0]
        mixed = mixer(x, mask, cache, *((passed,) if passes else ()))
        x = feedforward((mixed + laurel(norm(x))) * 2**-0.5)
        corrected = altup.correct(predictions, x[:, None])
        first, others = corrected[:, :, 0], corrected[:, :, 1:]  # (B, 1, D), (B, 1, N − 1, D)
        added = layer_input_norm(layer_input(first[:, 0] * altup.scale, passed))
        passed[STREAMS] = others = others + added[:, None, None]
        return (first if merge is None else merge(mx.concatenate([first[:, :, None], others], axis=2)))[:, 0]

    return step
