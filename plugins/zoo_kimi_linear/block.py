"""Kimi Delta Attention.

Axes: B batch, T length, L tokens of a chunk, D width, H heads, K width of a key, V width of a value.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.convolution import step_bias
from zoo.compiled_step.compiler import Function, StepCompiler, compiles
from zoo.compiled_step.convolution import convolution, stepping
from zoo_kimi_linear import specs
from zoo_qwen3_next.block import GatedDeltaNet, inverse


class KimiDeltaNet(GatedDeltaNet):
    """The gated delta rule with a rate for each number of a key (Kimi Linear, 2025, equation 1)."""

    joins = ("q", "k", "v", "beta", "alpha_down", "z_down")

    def __init__(self, spec: specs.KimiDeltaNet, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        rank, keys, values = spec.value_dim, spec.heads * spec.key_dim, spec.heads * spec.value_dim
        self.alpha_down, self.z_down = (nn.Linear(dim, rank, bias=False) for _ in range(2))
        self.alpha, self.z = (nn.Linear(rank, width, bias=False) for width in (keys, values))
        self.dt_bias = mx.ones(keys)

    def initialise(self, key: mx.array) -> None:
        """Initialise for training as the gated delta rule is."""
        super().initialise(key)
        self.dt_bias = step_bias(self.dt_bias.size, key)

    def select(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the log of the state's decay α (B, T, H·K) and the write strength β (B, T, H) in float32, for x (B, T, D)."""
        dt = mx.logaddexp(self.alpha(self.alpha_down(x)).astype(mx.float32) + self.dt_bias, 0.0)  # softplus
        A = mx.repeat(-mx.exp(self.A_log.astype(mx.float32)), self.spec.key_dim)
        return A * dt, mx.sigmoid(self.beta(x).astype(mx.float32))

    def scan(self, *arrays: Any) -> tuple[mx.array, mx.array]:
        """Return the output of each head (B, H, T, V) and the last state (B, H, K, V)."""
        q, k, v, rate, beta, state = arrays
        rate = mx.unflatten(rate, 1, k.shape[1::2]).swapaxes(2, 3)  # (B, H·K, T) -> (B, H, T, K)
        return delta_rule(q, k, v, rate, beta, state)

    def gate(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, H·V)
        """Return the output gate before its activation."""
        return self.z(self.z_down(x))

    def activate_gate(self, gate: mx.array) -> mx.array:  # (B, T, H·V) -> (B, T, H·V)
        """Return the sigmoid of the output gate."""
        return mx.sigmoid(gate)


def delta_rule(
    q: mx.array, k: mx.array, v: mx.array, rate: mx.array, beta: mx.array, state: mx.array | None
) -> tuple[mx.array, mx.array]:
    """S_t = Diag(α_t) S_(t−1) + β_t k_t ⊗ (v_t − (Diag(α_t) S_(t−1))ᵀ k_t) and y_t = S_tᵀ q_t, a chunk at a time.

    q, k, rate = log α (B, H, T, K), v (B, H, T, V), beta (B, H, T), state (B, H, K, V) or None for zeros; gives y (B, H, T, V)
    and the last state. Rates are subtracted before they are raised, so that no number of a chunk overflows.
    """
    outputs = []
    state = mx.zeros((*q.shape[:2], k.shape[3], v.shape[3])) if state is None else state
    for start in range(0, q.shape[2], specs.CHUNK):
        qc, kc, vc, rc, bc = (array[:, :, start : start + specs.CHUNK] for array in (q, k, v, rate, beta))
        total = mx.cumsum(rc, axis=2)  # (B, H, L, K): the log of what is left of the state before the chunk
        since = total[:, :, :, None] - total[:, :, None]  # (B, H, L, L, K)
        seen = mx.tri(rc.shape[2], dtype=mx.bool_)[..., None]
        kept = mx.exp(mx.where(seen, since, -mx.inf)) * kc[:, :, None]
        both = kept @ mx.stack([kc, qc], axis=-1)  # (B, H, L, L, 2)
        left = mx.exp(total)
        new = inverse(bc[..., None] * both[..., 0]) @ (bc[..., None] * (vc - (kc * left) @ state))
        outputs.append((qc * left) @ state + both[..., 1] @ new)
        faded = mx.exp(total[:, :, -1:] - total)  # (B, H, L, K): of each token's key, at the end
        state = left[:, :, -1, :, None] * state + (kc * faded).swapaxes(-1, -2) @ new
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2), state


@compiles(KimiDeltaNet, "__call__", "convolve", "select", "split", "scan", "gate", "activate_gate")
def step_of_kimi_delta_net(compiler: StepCompiler, block: KimiDeltaNet) -> Function:
    """One token of Kimi Delta Attention: (B, D), mask, cache -> (B, D)."""
    spec, output = block.spec, compiler.compile(block.output)
    layers = [block[name] for name in block.joins]
    joined = compiler.joined(*layers)
    projections = [] if joined else [compiler.compile(layer) for layer in layers]
    alpha, z = compiler.compile(block.alpha), compiler.compile(block.z)
    convolve = convolution(compiler, block.convolution, block.activation, wide=True)
    ends = [spec.channels, spec.channels + spec.heads, spec.channels + spec.heads + spec.value_dim]
    bias = compiler.take(block, "dt_bias").astype(mx.float32).reshape(spec.heads, -1, 1)
    A = -mx.exp(compiler.take(block, "A_log").astype(mx.float32)).reshape(-1, 1, 1)
    gain = compiler.take(block, "gain").astype(mx.float32)
    to_unit = mx.full((spec.key_dim,), spec.key_dim**-0.5)
    mx.eval(A, bias, gain, to_unit)

    def fade(alpha: mx.array, state: mx.array) -> mx.array:  # (B, H, K, 1), (B, H, K, V) -> (B, H, K, V)
        return mx.exp(A * mx.logaddexp(alpha.astype(mx.float32) + bias, 0.0)) * state

    def write(k: mx.array, v: mx.array, read: mx.array, beta: mx.array, state: mx.array) -> mx.array:
        """(B, H, K, 1), two of (B, H, 1, V), (B, H, 1, 1), (B, H, K, V) -> (B, H, K, V)."""
        return state + k * (mx.sigmoid(beta.astype(mx.float32)) * (v - read))

    def apply_gate(y: mx.array, gate: mx.array) -> mx.array:
        return (y * mx.sigmoid(gate.astype(mx.float32))).astype(gate.dtype)

    fade, write, apply_gate = (runtime.fused(function) for function in (fade, write, apply_gate))

    def step(x: mx.array, before: mx.array, state: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        rows, heads = x.shape[0], (x.shape[0], spec.heads, 1, -1)
        both = joined(x) if joined else mx.concatenate([project(x) for project in projections], axis=-1)
        mixed, beta, rates, gates = mx.split(both, ends, axis=-1)
        mixed, before = convolve(mixed, before)
        keys = spec.heads * spec.key_dim
        q, k, v = (part.reshape(heads) for part in mx.split(mixed, [keys, 2 * keys], axis=-1))
        # x / √(Σ x² + ε) is an RMSNorm with ε / K, times 1 / √K.
        q, k = (mx.fast.rms_norm(part, to_unit, 1e-6 / spec.key_dim) for part in (q, k))
        state = fade(alpha(rates).reshape(rows, spec.heads, -1, 1), state)
        state = write(k.swapaxes(-1, -2), v, k @ state, beta.reshape(heads), state)
        # Queries are not divided by √K: the norm's ε is multiplied by K instead.
        y = mx.fast.rms_norm(q @ state, gain, spec.eps * spec.key_dim)  # (B, H, 1, V)
        return output(apply_gate(y.reshape(rows, -1), z(gates))), before, state

    return stepping(block, step)
