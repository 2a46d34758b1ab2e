"""Mamba-2's mixer, and the recurrence of its state space, a chunk of tokens at a time.

`dt`, `A`, `B`, `C` and `D` are the paper's names. Axes: B batch, T length, L tokens of a chunk, D width, H heads, P width of a
head, N state, G groups, E channels that are convolved.
"""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

import zoo_mamba2 as specs
from zoo import runtime
from zoo.blocks.activation import activation
from zoo.blocks.convolution import Convolution, step_bias, tokens_only
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.compiler import Function, StepCompiler, chained, compiles
from zoo.compiled_step.convolution import convolution, stepping


class StateSpace(nn.Module):
    """output(norm(silu(gate) · (SSM(A, B, C, dt)(x) + D · x))), x convolved (Dao and Gu, 2024, section 7, figure 6)."""

    def __init__(self, spec: specs.StateSpace, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.input = nn.Linear(dim, spec.inner + spec.channels + spec.heads, bias=spec.bias)
        self.convolution = Convolution(spec.channels, spec.kernel, spec.kernel_bias)
        self.dt_bias, self.A_log, self.D = mx.zeros(spec.heads), mx.zeros(spec.heads), mx.ones(spec.heads)
        if spec.eps is not None:
            self.gain = mx.ones(spec.inner)
        self.output = nn.Linear(spec.inner, dim, bias=spec.output_bias)
        self.activation, self.silu = activation(spec.activation), activation("silu")

    @property
    def norm_first(self) -> bool:
        """Whether the norm comes before the gate."""
        return False

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the last K − 1 values before the convolution, and of the state."""
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
        gate, mixed, dt = self.project(x)
        mixed, before = self.convolve(mixed, before, mask)
        x, B, C = self.select(mixed)
        y, state = self.scan(
            x, tokens_only(self.step(dt), mask), B, C, state
        )  # a dt of 0 leaves the state as it was
        if cache is not None:
            cache[0], cache[1] = before, state
            cache.advance(length)
        y = y.swapaxes(1, 2).reshape(batch, length, -1)
        return self.output(self.gated(y, gate.astype(mx.float32)).astype(dtype))

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """The gate (B, T, H·P), what is convolved (B, T, E), and dt before its softplus (B, T, H): (B, T, D) ->."""
        spec = self.spec
        ends = [spec.inner, spec.inner + spec.channels]
        gate, mixed, dt = mx.split(self.scaled(self.input(x)), ends, axis=-1)
        return gate, mixed, dt

    def scaled(self, projections: mx.array) -> mx.array:  # (…, H·P + E + H) -> (…, H·P + E + H)
        """Scale the outputs of the input projection: gate, convolved channels and dt. Mamba-2 scales none."""
        return projections

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:  # (B, T, E) -> (B, T, E), (B, K − 1, E)
        """What enters the state space, with B and C, and the values before the convolution that the next call needs."""
        x, before = self.convolution(tokens_only(x, mask), before, mask)
        return tokens_only(self.activation(x), mask), before  # the convolution's bias is no token's either

    def select(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """x (B, H, T, P), B and C (B, G, T, N) in float32: (B, T, E) ->."""
        spec, ends = self.spec, self.spec.inner + self.spec.groups * self.spec.state
        parts = mx.split(x.astype(mx.float32), [spec.inner, ends], axis=-1)
        counts = (spec.heads, spec.groups, spec.groups)
        heads = (
            part.reshape(*part.shape[:2], n, -1).swapaxes(1, 2) for part, n in zip(parts, counts, strict=True)
        )
        x, B, C = heads
        return x, B, C

    def step(self, dt: mx.array) -> mx.array:  # (B, T, H) -> (B, T, H)
        """How far a token moves each head's state, above zero."""
        return bounded_step(self.spec, dt.astype(mx.float32) + self.dt_bias)

    def scan(
        self, x: mx.array, dt: mx.array, B: mx.array, C: mx.array, state: mx.array | None
    ) -> tuple[
        mx.array, mx.array
    ]:  # (B, H, T, P), (B, T, H), (B, G, T, N) twice, (B, H, P, N) -> (B, H, T, P), (B, H, P, N)
        """The state space's output and D · x, and the last state."""
        dt, rate, B, C = self.shared(dt, B, C)
        y, state = scan(x * dt[..., None], rate, B, C, state)
        return y + self.D[:, None, None] * x, state

    def shared(self, dt: mx.array, B: mx.array, C: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """dt and dt · A of every head, (B, H, T) each, and the B and C of its group, (B, H, T, N) each."""
        dt, each = dt.swapaxes(1, 2), self.spec.heads // self.spec.groups
        rate = dt * -mx.exp(self.A_log.astype(mx.float32))[:, None]
        return dt, rate, mx.repeat(B, each, axis=1), mx.repeat(C, each, axis=1)

    def gated(self, y: mx.array, gate: mx.array) -> mx.array:  # (B, T, H·P) twice -> (B, T, H·P)
        """Multiply by the activated gate and normalise, in the order that `norm_first` says; without a norm, multiply alone."""
        if self.norm_first:
            return self.norm(y) * self.activate_gate(gate)
        opened = y * self.activate_gate(gate)
        return opened if self.spec.eps is None else self.norm(opened)

    def activate_gate(self, gate: mx.array) -> mx.array:  # (B, T, H·P) -> (B, T, H·P)
        """The gate of the state space's output."""
        return self.silu(gate)

    def norm(self, y: mx.array) -> mx.array:  # (B, T, H·P) -> (B, T, H·P)
        """RMSNorm of each group by itself."""
        grouped = y.reshape(*y.shape[:2], self.spec.groups, -1)
        return mx.fast.rms_norm(grouped, None, self.spec.eps).reshape(y.shape) * self.gain


def bounded_step(spec: specs.StateSpace, dt: mx.array) -> mx.array:
    """The softplus of dt, of any shape, within the bounds of the spec."""
    dt = mx.logaddexp(dt, 0.0)
    return mx.clip(dt, spec.step_min, spec.step_max) if spec.step_min or spec.step_max is not None else dt


def scan(
    x: mx.array, rate: mx.array, B: mx.array, C: mx.array, state: mx.array | None, chunk: int = specs.CHUNK
) -> tuple[mx.array, mx.array]:
    """h_t = exp(rate_t) h_(t−1) + x_t ⊗ B_t and y_t = h_t C_t, a chunk at a time (Dao and Gu, 2024, section 6).

    x (B, H, T, P), rate (B, H, T) ≤ 0, B and C (B, H, T, N), state (B, H, P, N) or None for zeros; gives y (B, H, T, P) and
    the last state.
    """
    outputs = []
    state = mx.zeros((*x.shape[:2], x.shape[3], B.shape[3])) if state is None else state
    for start in range(0, x.shape[2], chunk):
        xc, rc, Bc, Cc = (array[:, :, start : start + chunk] for array in (x, rate, B, C))
        total = mx.cumsum(rc, axis=-1)  # (B, H, L): the log of what is left of the state before the chunk
        since = total[..., :, None] - total[..., None, :]  # (B, H, L, L): of what token s wrote, at token t
        kept = mx.exp(mx.where(mx.tri(rc.shape[2], dtype=mx.bool_), since, -mx.inf))
        within = (Cc @ Bc.swapaxes(-1, -2) * kept) @ xc  # (B, H, L, P): like attention without a softmax
        outputs.append(within + mx.exp(total)[..., None] * (Cc @ state.swapaxes(-1, -2)))
        left = mx.exp(total[..., -1:] - total)[..., None]  # (B, H, L, 1): of each token's, at the end
        state = mx.exp(total[..., -1])[..., None, None] * state + (xc * left).swapaxes(-1, -2) @ Bc
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=2), state


@compiles(
    StateSpace,
    "__call__",
    "project",
    "convolve",
    "select",
    "step",
    "scan",
    "shared",
    "norm",
    "gated",
    "activate_gate",
)
def step_of_mixer(compiler: StepCompiler, block: StateSpace) -> Function:
    """Compiled decode step of the mixer: (B, D), mask, cache -> (B, D). A is computed once. Elementwise operations are fused; e heads a group."""
    spec, output = block.spec, compiler.compile(block.output)
    groups, each, ends = spec.groups, spec.heads // spec.groups, spec.inner + spec.groups * spec.state
    convolve, silu = convolution(compiler, block.convolution, block.activation, wide=True), block.silu
    bias, A_log, D = (
        compiler.take(block, name).reshape(groups, each, 1, 1) for name in ("dt_bias", "A_log", "D")
    )
    A = -mx.exp(A_log.astype(mx.float32))
    bias, D = bias.astype(mx.float32), D.astype(mx.float32)
    gain = compiler.take(block, "gain").astype(mx.float32) if "gain" in block else None
    mx.eval(A, bias, D, gain)
    norm_first = block.norm_first
    project = chained(compiler.compile(block.input), block.scaled)

    def advance(x: mx.array, dt: mx.array, B: mx.array, h: mx.array) -> mx.array:
        dt = bounded_step(spec, dt.astype(mx.float32) + bias)  # (B, G, e, P, N)
        return mx.exp(dt * A) * h + x * dt * B  # (B, G, e, P, N)

    def read(y: mx.array, x: mx.array, gate: mx.array) -> mx.array:  # (B, G, e, P, 1) each
        y = y + D * x
        return y if norm_first else y * silu(gate.astype(mx.float32))

    def finish(y: mx.array, gate: mx.array) -> mx.array:  # (B, H·P) each
        y = y if gain is None else y * gain
        return (y * silu(gate.astype(mx.float32)) if norm_first else y).astype(gate.dtype)

    advance, read, finish = (runtime.fused(function) for function in (advance, read, finish))

    def step(x: mx.array, before: mx.array, last: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        rows, heads = x.shape[0], (x.shape[0], groups, each, -1, 1)
        gate, mixed, dt = mx.split(project(x), [spec.inner, spec.inner + spec.channels], axis=-1)
        mixed, before = convolve(mixed, before)
        x, B, C = mx.split(mixed, [spec.inner, ends], axis=-1)
        x = x.reshape(heads)
        h = last.reshape(*heads[:3], *last.shape[2:])
        dt = mx.broadcast_to(
            dt.reshape(heads), h.shape
        )  # a cast in another shape would be a kernel of its own
        state = advance(x, dt, B.reshape(rows, groups, 1, 1, -1), h)
        y = state @ C.reshape(rows, groups, 1, -1, 1)  # (B, G, e, P, 1)
        y = read(y, x, gate.reshape(heads)).reshape(rows, -1)
        if gain is not None:
            y = mx.fast.rms_norm(y.reshape(rows, groups, -1), None, spec.eps).reshape(rows, -1)
        return output(finish(y, gate)), before, state.reshape(last.shape)

    return stepping(block, step)
