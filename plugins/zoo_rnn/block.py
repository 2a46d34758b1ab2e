"""LSTM, GRU and the layer that stacks them. Axes: B batch, T length, D width, G gates."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

import zoo_rnn as specs
from zoo.blocks.layer import CachedLayer
from zoo.blocks.mask import Mask
from zoo.cache import CachePolicy, StateCache


class RecurrentUnit(nn.Module):
    """The base of LSTM and GRU: the inputs' share of every gate in one product, then a step a token.

    Subclasses give `gates(inputs, states)`, (B, G·D) and the states before -> the gates, (B, D) each, and
    `step(gates, states)` -> the states after, the first of which is also the output.
    """

    def __init__(self, spec: specs.RecurrentUnit, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.input = nn.Linear(dim, spec.gates * dim, bias=spec.bias)
        self.recurrent = nn.Linear(dim, spec.gates * dim, bias=spec.bias)

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the states after the last token."""
        return StateCache(self.spec.states, policy)

    def initialise(self, key: mx.array) -> None:
        """Initialise for training: uniform in ±1/√D (torch's choice), biases zero."""
        for linear, own_key in zip((self.input, self.recurrent), mx.random.split(key), strict=True):
            spread = linear.weight.shape[1] ** -0.5
            linear.weight = mx.random.uniform(-spread, spread, linear.weight.shape, key=own_key)
            if "bias" in linear:
                linear.bias = mx.zeros_like(linear.bias)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D); mask (B, T)
        batch, length, dim = x.shape
        states = [None if cache is None else cache[i] for i in range(self.spec.states)]
        states = [mx.zeros((batch, dim), dtype=x.dtype) if state is None else state for state in states]
        inputs = self.input(x)  # (B, T, G·D)
        outputs = []
        for t, token_inputs in enumerate(mx.split(inputs, length, axis=1)):
            new = self.step(self.gates(token_inputs.squeeze(1), states), states)  # (B, D) each
            if mask is not None:  # a column that holds no token leaves the states as they were
                token = mask[:, t, None]  # (B, 1)
                new = [mx.where(token, after, before) for after, before in zip(new, states, strict=True)]
            states = new
            outputs.append(states[0])
        if cache is not None:
            for i, state in enumerate(states):
                cache[i] = state
            cache.advance(length)
        return mx.stack(outputs, axis=1)


class LSTM(RecurrentUnit):
    """c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c') (Gers et al., 2000; gates in torch's order i, f, g, o)."""

    def initialise(self, key: mx.array) -> None:
        """The same with the forget gate open: a bias of 1 (Jozefowicz et al., 2015, section 2.2)."""
        super().initialise(key)
        if "bias" in self.input:
            dim = self.input.weight.shape[1]
            self.input.bias = mx.concatenate([mx.zeros(dim), mx.ones(dim), mx.zeros(2 * dim)])

    def gates(self, inputs: mx.array, states: list[mx.array]) -> list[mx.array]:
        """One token: (B, 4 D) and [h, c] -> σ(i), σ(f), tanh(g), σ(o), (B, D) each."""
        i, f, g, o = mx.split(inputs + self.recurrent(states[0]), 4, axis=-1)
        return [mx.sigmoid(i), mx.sigmoid(f), mx.tanh(g), mx.sigmoid(o)]

    def step(self, gates: list[mx.array], states: list[mx.array]) -> list[mx.array]:
        """[h, c] -> [h', c'], (B, D) each."""
        i, f, g, o = gates
        c = f * states[1] + i * g
        return [o * mx.tanh(c), c]


class GRU(RecurrentUnit):
    """h' = (1 − z) n + z h, n = tanh(n_x + σ(r) · n_h) (Cho et al., 2014; gates in torch's order r, z, n).

    The reset gate multiplies what the state's product gives, bias included, not the state itself.
    """

    def gates(self, inputs: mx.array, states: list[mx.array]) -> list[mx.array]:
        """One token: (B, 3 D) and [h] -> σ(r), σ(z), n, (B, D) each."""
        r, z, n = mx.split(inputs, 3, axis=-1)
        hr, hz, hn = mx.split(self.recurrent(states[0]), 3, axis=-1)
        r = mx.sigmoid(r + hr)
        return [r, mx.sigmoid(z + hz), mx.tanh(n + r * hn)]

    def step(self, gates: list[mx.array], states: list[mx.array]) -> list[mx.array]:
        """[h] -> [h'], (B, D)."""
        _, z, n = gates
        return [n + z * (states[0] - n)]


class StackedLayer(CachedLayer):
    """The mixer's output as it is."""

    def __init__(self, spec: specs.StackedLayer, *, dim: int, index: int = 0, mixer: nn.Module) -> None:
        super().__init__(spec, index)
        self.mixer = mixer

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.mixer(x, mask, cache)
