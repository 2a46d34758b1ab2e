"""Qwen3-Next's mixers: the gated delta rule, a chunk of tokens at a time, and attention with a gate.

`alpha` and `beta` are the paper's α and β, `A_log` and `dt_bias` what α is made with, as in Mamba-2. Axes: B batch, T length, L
tokens of a chunk, D width, H value heads, G key heads, K width of a key, V width of a value, E channels that are convolved.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.activation import activation
from zoo.blocks.attention import Attention
from zoo.blocks.convolution import Convolution, step_bias, tokens_only
from zoo.blocks.mask import Mask
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.attention import attend_of
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles
from zoo.compiled_step.convolution import convolution, stepping
from zoo_qwen3_next import specs


class GatedAttention(Attention):
    """Attention whose heads are multiplied by σ(gate(x)) before the output projection (Qiu et al., 2025, equation 5)."""

    joins = ("query", "gate", "key", "value")

    def __init__(self, spec: specs.GatedAttention, *, dim: int, index: int = 0, **parts: Any) -> None:
        super().__init__(spec, dim=dim, index=index, **parts)
        self.gate = nn.Linear(dim, self.heads * self.head_dim, bias=spec.bias)

    def __call__(
        self, x: mx.array, mask: Mask = None, cache: Any = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        return self.output(self.attend(x, mask, cache) * self.activate_gate(x))

    def activate_gate(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, H·K)
        """How much of each number of each head is let through."""
        return mx.sigmoid(self.gate(x))


class GatedDeltaNet(nn.Module):
    """output(norm(delta rule of the convolved queries, keys and values) · silu(gate)) (Yang et al., 2024, figure 1)."""

    joins = ("q", "k", "v", "z", "beta", "alpha")

    def __init__(self, spec: specs.GatedDeltaNet, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        keys, values = spec.key_heads * spec.key_dim, spec.heads * spec.value_dim
        self.q, self.k = (nn.Linear(dim, keys, bias=False) for _ in range(2))
        self.v, self.z = (nn.Linear(dim, values, bias=False) for _ in range(2))
        self.beta, self.alpha = (nn.Linear(dim, spec.heads, bias=False) for _ in range(2))
        self.convolution = Convolution(spec.channels, spec.kernel, bias=False)
        self.dt_bias, self.A_log, self.gain = (
            mx.ones(spec.heads),
            mx.zeros(spec.heads),
            mx.ones(spec.value_dim),
        )
        self.output = nn.Linear(values, dim, bias=False)
        self.activation, self.silu = activation(spec.activation), activation("silu")

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the last values before the convolution, and of the state."""
        return StateCache(2, policy)

    def initialise(self, key: mx.array) -> None:
        """Initialise for training: A of −1 to −16, dt of 0.001 to 0.1, spread evenly in log (the authors' code)."""
        spec, keys = self.spec, mx.random.split(key, 3)
        self.A_log = mx.log(mx.random.uniform(1.0, 16.0, (spec.heads,), key=keys[0]))
        self.dt_bias = step_bias(spec.heads, keys[1])
        self.convolution.draw_weight(keys[2])

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: StateCache | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D); mask (B, T)
        (batch, length, _), dtype = x.shape, x.dtype
        before, state = (None, None) if cache is None else (cache[0], cache[1])
        mixed, before = self.convolve(
            mx.concatenate([self.q(x), self.k(x), self.v(x)], axis=-1), before, mask
        )
        rate, beta = self.select(x)
        # A column that holds no token neither fades the state nor writes into it.
        rate, beta = (tokens_only(part, mask).swapaxes(1, 2) for part in (rate, beta))  # (B, H, T)
        y, state = self.scan(*self.split(mixed), rate, beta, state)
        if cache is not None:
            cache[0], cache[1] = before, state
            cache.advance(length)
        y = mx.fast.rms_norm(y.swapaxes(1, 2), self.gain.astype(mx.float32), self.spec.eps)  # (B, T, H, V)
        opened = self.activate_gate(self.gate(x).astype(mx.float32))
        return self.output((y.reshape(batch, length, -1) * opened).astype(dtype))

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:  # (B, T, E) -> (B, T, E), (B, kernel − 1, E)
        """Queries, keys and values side by side, and the values before the convolution that the next call needs."""
        x, before = self.convolution(tokens_only(x, mask), before, mask)
        return self.activation(x), before

    def select(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the log of the state's decay α and the write strength β, (B, T, H) each in float32, for x (B, T, D)."""
        dt = mx.logaddexp(self.alpha(x).astype(mx.float32) + self.dt_bias, 0.0)  # softplus
        return -mx.exp(self.A_log.astype(mx.float32)) * dt, mx.sigmoid(self.beta(x).astype(mx.float32))

    def split(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries and keys (B, H, T, K) of length one, queries divided by √K, and values (B, H, T, V): (B, T, E) ->."""
        spec, keys = self.spec, self.spec.key_heads * self.spec.key_dim
        parts = mx.split(x.astype(mx.float32), [keys, 2 * keys], axis=-1)
        counts = (spec.key_heads, spec.key_heads, spec.heads)
        q, k, v = (
            part.reshape(*part.shape[:2], n, -1).swapaxes(1, 2) for part, n in zip(parts, counts, strict=True)
        )
        each = spec.heads // spec.key_heads
        return mx.repeat(unit(q) * spec.key_dim**-0.5, each, axis=1), mx.repeat(unit(k), each, axis=1), v

    def scan(self, *arrays: Any) -> tuple[mx.array, mx.array]:
        """Return the output of each head (B, H, T, V) and the last state (B, H, K, V)."""
        return delta_rule(*arrays)

    def gate(self, x: mx.array) -> mx.array:  # (B, T, D) -> (B, T, H·V)
        """Return the output gate before its activation."""
        return self.z(x)

    def activate_gate(self, gate: mx.array) -> mx.array:  # (B, T, H·V) -> (B, T, H·V)
        """Return the SiLU of the output gate."""
        return self.silu(gate)


def unit(x: mx.array) -> mx.array:  # (…, K) -> (…, K)
    """Vectors of length one."""
    return x * mx.rsqrt(mx.square(x).sum(axis=-1, keepdims=True) + 1e-6)


def delta_rule(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    rate: mx.array,
    beta: mx.array,
    state: mx.array | None,
    chunk: int = specs.CHUNK,
) -> tuple[mx.array, mx.array]:
    """S_t = α_t S_(t−1) + β_t k_t ⊗ (v_t − α_t S_(t−1)ᵀ k_t) and y_t = S_tᵀ q_t, a chunk at a time.

    q, k (B, H, T, K), v (B, H, T, V), rate = log α and beta (B, H, T), state (B, H, K, V) or None for zeros; gives y (B, H, T, V)
    and the last state. What the tokens of a chunk write depends on each other by a triangular system, which is solved at
    once (Yang et al., 2024, section 3.3).
    """
    outputs = []
    state = mx.zeros((*q.shape[:2], k.shape[3], v.shape[3])) if state is None else state
    for start in range(0, q.shape[2], chunk):
        qc, kc, vc, rc, bc = (array[:, :, start : start + chunk] for array in (q, k, v, rate, beta))
        total = mx.cumsum(rc, axis=-1)  # (B, H, L): the log of what is left of the state before the chunk
        since = total[..., :, None] - total[..., None, :]  # (B, H, L, L)
        kept = mx.exp(mx.where(mx.tri(rc.shape[2], dtype=mx.bool_), since, -mx.inf))
        left = mx.exp(total)[..., None]  # (B, H, L, 1)
        system = bc[..., None] * (kc @ kc.swapaxes(-1, -2)) * kept
        new = inverse(system) @ (
            bc[..., None] * (vc - left * (kc @ state))
        )  # (B, H, L, V): what each token writes
        outputs.append(left * (qc @ state) + (qc @ kc.swapaxes(-1, -2) * kept) @ new)
        faded = mx.exp(total[..., -1:] - total)[..., None]  # (B, H, L, 1): of each token's, at the end
        state = left[..., -1:, :] * state + (kc * faded).swapaxes(-1, -2) @ new
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2), state


def inverse(system: mx.array) -> mx.array:
    """The inverse of I plus what of a matrix (…, L, L) is below the diagonal.

    The inverses of two neighbouring blocks on the diagonal give that of both: ⌈log₂ L⌉ steps, each as stable as substitution.
    """
    length = system.shape[-1]
    place = mx.arange(length)
    inverted, size = mx.eye(length), 1
    while size < length:
        row, column = place[:, None] // size, place[None] // size
        below = (row % 2 == 1) & (column == row - 1)  # the lower left quarter of each pair of blocks
        inverted = inverted - inverted @ mx.where(below, system, 0) @ inverted
        size *= 2
    return inverted


@compiles(GatedAttention, "__call__", "attend", "project", "split", "merge", "rotate", "activate_gate")
def step_of_attention(compiler: StepCompiler, block: GatedAttention) -> Function | None:
    """One token of attention with an output gate: (B, D), mask, cache -> (B, D)."""
    attend, gate = attend_of(compiler, block), compiler.compile(block.gate)
    if attend is None:
        return None
    apply_gate = runtime.fused(lambda y, gate: y * mx.sigmoid(gate))
    return chained(
        lambda x, mask, cache: apply_gate(attend(x, mask, cache), gate(x)), compiler.compile(block.output)
    )


@compiles(GatedDeltaNet, "__call__", "convolve", "select", "split", "scan", "gate", "activate_gate")
def step_of_delta_net(compiler: StepCompiler, block: GatedDeltaNet) -> Function:
    """One token of the gated delta rule: (B, D), mask, cache -> (B, D). G key heads, e value heads for each."""
    spec, silu, output = block.spec, block.silu, compiler.compile(block.output)
    layers = [block[name] for name in block.joins]
    joined = compiler.joined(*layers)
    projections = [] if joined else [compiler.compile(layer) for layer in layers]
    convolve = convolution(compiler, block.convolution, block.activation, wide=True)
    groups, each, keys = spec.key_heads, spec.heads // spec.key_heads, spec.key_heads * spec.key_dim
    ends = [spec.channels, spec.channels + spec.heads * spec.value_dim]
    bias, A_log = (compiler.take(block, name).reshape(groups, each, 1, 1) for name in ("dt_bias", "A_log"))
    A, gain = -mx.exp(A_log.astype(mx.float32)), compiler.take(block, "gain").astype(mx.float32)
    to_unit = mx.full((spec.key_dim,), spec.key_dim**-0.5)
    bias = bias.astype(mx.float32)
    mx.eval(A, bias, gain, to_unit)

    def advance(
        k: mx.array, v: mx.array, read: mx.array, alpha: mx.array, beta: mx.array, state: mx.array
    ) -> mx.array:
        """(B, G, 1, K, 1), two of (B, G, e, 1, V), two of (B, G, e, 1, 1), (B, G, e, K, V) -> (B, G, e, K, V)."""
        left = mx.exp(A * mx.logaddexp(alpha.astype(mx.float32) + bias, 0.0))
        new = mx.sigmoid(beta.astype(mx.float32)) * (v - left * read)
        return left * state + k * new

    def apply_gate(y: mx.array, gate: mx.array) -> mx.array:
        return (y * silu(gate.astype(mx.float32))).astype(gate.dtype)

    advance, apply_gate = runtime.fused(advance), runtime.fused(apply_gate)

    def step(x: mx.array, before: mx.array, state: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        rows, shape, heads = x.shape[0], state.shape, (x.shape[0], groups, each, 1, -1)
        both = joined(x) if joined else mx.concatenate([project(x) for project in projections], axis=-1)
        mixed, z, rates = mx.split(both, ends, axis=-1)
        beta, alpha = mx.split(rates, 2, axis=-1)  # (B, H) each
        mixed, before = convolve(mixed, before)
        pair, v = mx.split(mixed, [2 * keys], axis=-1)
        pair = pair.reshape(rows, 2, groups, 1, 1, -1)
        # x / √(Σ x² + ε) is an RMSNorm with ε / K, times 1 / √K.
        q, k = (
            part[:, 0] for part in mx.split(mx.fast.rms_norm(pair, to_unit, 1e-6 / spec.key_dim), 2, axis=1)
        )
        state = state.reshape(*heads[:3], *shape[2:])
        rates = (alpha.reshape(heads), beta.reshape(heads))
        state = advance(k.swapaxes(-1, -2), v.reshape(heads), k @ state, *rates, state)
        # Queries are not divided by √K: the norm's ε is multiplied by K instead.
        y = mx.fast.rms_norm(q @ state, gain, spec.eps * spec.key_dim)  # (B, G, e, 1, V)
        return output(apply_gate(y.reshape(rows, -1), z)), before, state.reshape(shape)

    return stepping(block, step)
