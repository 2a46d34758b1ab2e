"""Mamba's mixer and layer, and the recurrence of their state space, over many tokens at once or one.

`dt`, `A`, `B`, `C` and `h` are the paper's. Axes: B batch, T length, D width, E channels, N state a channel, R rank of dt,
J chunks.
"""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn

import zoo_mamba as specs
from zoo import runtime
from zoo.blocks.activation import activation
from zoo.blocks.convolution import Convolution, step_bias, tokens_only
from zoo.blocks.layer import CachedLayer
from zoo.cache import CachePolicy, StateCache
from zoo.compiled_step.compiler import Function, StepCompiler, compiles
from zoo.compiled_step.convolution import convolution, stepping
from zoo_mamba import CHUNK, SEGMENT

LOG2_E = math.log2(math.e)


class SelectiveStateSpace(nn.Module):
    """output(silu(gate) · (SSM(A, B, C, dt)(x) + D · x)), x convolved (Gu and Dao, 2023, algorithm 2 and figure 3).

    The paper's names: dt, B and C are projections of each token. `A_log` holds log −A, (N, E), so that A is negative
    whatever is learned, and every factor exp(dt · A) lies in (0, 1).
    """

    def __init__(self, spec: specs.SelectiveStateSpace, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.input = nn.Linear(dim, 2 * spec.hidden, bias=spec.bias)
        self.convolution = Convolution(spec.hidden, spec.kernel, spec.kernel_bias)
        self.x_proj = nn.Linear(spec.hidden, spec.dt_rank + 2 * spec.state, bias=False)
        self.dt_proj = nn.Linear(spec.dt_rank, spec.hidden, bias=True)
        self.A_log = mx.zeros((spec.state, spec.hidden))
        self.D = mx.ones((spec.hidden,))
        self.output = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)
        self.gate_activation = activation("silu")  # whatever `activation` is, as in the reference

    def make_cache(self, policy: CachePolicy | None = None) -> StateCache:
        """A cache of the last K − 1 values before the convolution, and of the state."""
        return StateCache(2, policy)

    def initialise(self, key: mx.array) -> None:
        """Initialise for training (section 3.6 and appendix C): A = −1 … −N, dt of 0.001 to 0.1, spread evenly in log."""
        spec, keys = self.spec, mx.random.split(key, 3)
        self.A_log = mx.broadcast_to(mx.log(mx.arange(1.0, spec.state + 1.0))[:, None], self.A_log.shape)
        self.dt_proj.bias = step_bias(spec.hidden, keys[0])
        spread = spec.dt_rank**-0.5
        self.dt_proj.weight = mx.random.uniform(-spread, spread, self.dt_proj.weight.shape, key=keys[1])
        self.convolution.draw_weight(keys[2])
        for module in (self.convolution, self.input, self.output):
            if "bias" in module:
                module.bias = mx.zeros_like(module.bias)

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: StateCache | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D); mask (B, T)
        spec, dtype = self.spec, x.dtype
        before, h = (None, None) if cache is None else (cache[0], cache[1])
        if h is None:
            h = mx.zeros((x.shape[0], spec.state, spec.hidden))
        x, gate = mx.split(self.input(x), 2, axis=-1)  # (B, T, E) each
        x, before = self.convolve(x, before, mask)
        dt, B, C = self.select(x)
        y, h = self.scan(x.astype(mx.float32), tokens_only(dt, mask), B, C, h)  # a dt of 0 leaves h as it was
        if cache is not None:
            cache[0], cache[1] = before, h
            cache.advance(x.shape[1])
        return self.output((y * self.activate_gate(gate)).astype(dtype))

    def convolve(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:  # (B, T, E) -> (B, T, E), (B, K − 1, E)
        """The input of the state space, and the values before the convolution that the next call needs."""
        x, before = self.convolution(tokens_only(x, mask), before, mask)
        return tokens_only(self.activation(x), mask), before  # the convolution's bias is no token's either

    def select(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """dt (B, T, E), B and C (B, T, N) of each token, in float32: (B, T, E) ->."""
        dt, B, C = self.project(x)
        dt = mx.logaddexp(self.dt_proj(dt).astype(mx.float32), 0.0)  # softplus
        return dt, B.astype(mx.float32), C.astype(mx.float32)

    def project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """dt's low-rank form (B, T, R), B and C (B, T, N): (B, T, E) ->."""
        spec = self.spec
        dt, B, C = mx.split(self.x_proj(x), [spec.dt_rank, spec.dt_rank + spec.state], axis=-1)
        return dt, B, C

    def decay(self) -> mx.array:
        """A · log₂ e, (N, E), for powers of 2."""
        return -LOG2_E * mx.power(2.0, LOG2_E * self.A_log.astype(mx.float32))

    def scan(
        self, x: mx.array, dt: mx.array, B: mx.array, C: mx.array, h: mx.array
    ) -> tuple[mx.array, mx.array]:  # (B, T, E), (B, N, E) -> (B, T, E), (B, N, E)
        """The state space's output and D · x, and the last state."""
        y, h = scan(dt * x, dt, B, C, self.decay(), h)
        return y + self.D * x, h

    def activate_gate(self, gate: mx.array) -> mx.array:  # (B, T, E) -> (B, T, E)
        """The gate of the state space's output."""
        return self.gate_activation(gate)


class MixerLayer(CachedLayer):
    """x + mixer(norm(x))."""

    def __init__(
        self,
        spec: specs.MixerLayer,
        *,
        dim: int,
        index: int = 0,
        mixer: nn.Module,
        mixer_norm: nn.Module,
    ) -> None:
        super().__init__(spec, index)
        self.mixer, self.mixer_norm = mixer, mixer_norm
        self.float32_residual = spec.float32_residual

    def __call__(
        self, x: mx.array, mask: mx.array | None = None, cache: StateCache | None = None
    ) -> mx.array:  # (B, T, D) -> (B, T, D)
        mixed = self.mixer(self.mixer_norm(x), mask, cache)
        return (x.astype(mx.float32) if self.float32_residual else x) + mixed


def scan(
    x: mx.array, dt: mx.array, B: mx.array, C: mx.array, A: mx.array, h: mx.array
) -> tuple[mx.array, mx.array]:
    """h_t = 2^(dt_t · A) · h_(t−1) + B_t ⊗ x_t and y_t = C_t · h_t (Gu and Dao, 2023, equation 2).

    x, dt (B, T, E), B, C (B, T, N), A (N, E) < 0, h (B, N, E); gives y (B, T, E) and the last h. The chunks of a text
    run side by side from a state of zero, each with the product of its factors 2^(dt · A); the state that each should
    have started from is then passed from one to the next. Such products only shrink, and nothing is divided by one, so
    that no text is too long.
    """
    outputs = []
    for start in range(0, x.shape[1], SEGMENT):
        segment = slice(start, start + SEGMENT)
        y, h = _segment(x[:, segment], dt[:, segment], B[:, segment], C[:, segment], A, h)
        outputs.append(y)
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs, axis=1), h


def _segment(
    x: mx.array, dt: mx.array, B: mx.array, C: mx.array, A: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    batch, length, channels = x.shape
    chunks = -(-length // CHUNK)
    size = -(-length // chunks)
    steps = [_steps(array, chunks, size) for array in (x, dt, B, C)]
    # The first chunk knows what it starts from; a lone one therefore has nothing to be added later.
    h = state[:, None] if chunks == 1 else None  # (B, J, N, E)
    decay, outputs = None, []
    for xt, dtt, Bt, Ct in zip(*steps, strict=True):  # (B, J, 1, E) twice, (B, J, 1, N) twice
        kept = mx.power(2.0, dtt * A)  # (B, J, N, E): on a CPU a third of the time of exp
        new = Bt.swapaxes(2, 3) * xt
        h = new if h is None else kept * h + new
        if chunks > 1:
            decay = kept if decay is None else kept * decay
        outputs.append((Ct, h, decay))
    if chunks == 1:
        y, state = [Ct @ h for Ct, h, _ in outputs], h[:, 0]  # type: ignore[index]  # there is a token
    else:
        begin, state = _beginnings(h, decay, state)
        y = [Ct @ (h + decay * begin) for Ct, h, decay in outputs]
    return mx.concatenate(y, axis=2).reshape(batch, -1, channels)[:, :length], state


def _steps(array: mx.array, chunks: int, size: int) -> list[mx.array]:
    """(B, T, ·) -> for each index in a chunk (B, J, 1, ·). Zeros fill the last chunk: a dt of 0 changes no state."""
    batch, length, width = array.shape
    array = mx.pad(array, [(0, 0), (0, chunks * size - length), (0, 0)])
    return mx.split(array.reshape(batch, chunks, size, width), size, axis=2)


def _beginnings(local: mx.array, decay: mx.array, state: mx.array) -> tuple[mx.array, mx.array]:
    """The state at the start of each chunk, (B, J, N, E), and at the end of the last, (B, N, E).

    `local` is what each chunk ends with from a state of zero, `decay` the product of its factors, (B, J, N, E) each.
    """
    chunks = local.shape[1]
    begin = [state[:, None]]
    for h, factor in zip(mx.split(local, chunks, axis=1), mx.split(decay, chunks, axis=1), strict=True):
        begin.append(factor * begin[-1] + h)
    return mx.concatenate(begin[:-1], axis=1), begin[-1][:, 0]


@compiles(SelectiveStateSpace, "__call__", "convolve", "select", "decay", "scan", "activate_gate")
def step_of_mixer(compiler: StepCompiler, block: SelectiveStateSpace) -> Function:
    """Compiled decode step: (B, D), mask, cache -> (B, D): A and D are read once, and what is elementwise is one kernel."""
    project_in, project_dt, output = (
        compiler.compile(block[name]) for name in ("input", "dt_proj", "output")
    )
    convolve, activate = convolution(compiler, block.convolution, block.activation), block.gate_activation
    compiler.take(block, "A_log")
    A, D = block.decay(), compiler.take(block, "D").astype(mx.float32)  # (N, E), (E,)
    mx.eval(A, D)

    def advance(x: mx.array, dt: mx.array, B: mx.array, h: mx.array) -> mx.array:
        dt = mx.logaddexp(dt.astype(mx.float32), 0.0)  # (B, 1, E)
        return mx.power(2.0, dt * A) * h + B.astype(mx.float32) * (dt * x.astype(mx.float32))  # (B, N, E)

    def gated(y: mx.array, x: mx.array, gate: mx.array) -> mx.array:  # (B, E) each
        return ((y + D * x.astype(mx.float32)) * activate(gate)).astype(x.dtype)

    advance, gated = runtime.fused(advance), runtime.fused(gated)

    def step(x: mx.array, before: mx.array, h: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        x, gate = mx.split(project_in(x), 2, axis=-1)  # (B, E) each
        x, before = convolve(x, before)
        dt, B, C = block.project(x)
        h = advance(x[:, None], project_dt(dt)[:, None], B[..., None], h)
        y = mx.squeeze(C[:, None].astype(mx.float32) @ h, 1)
        return output(gated(y, x, gate)), before, h

    return stepping(block, step)


@compiles(MixerLayer, "__call__")
def step_of_layer(compiler: StepCompiler, block: MixerLayer) -> Function:
    """Compiled decode step: (B, D), mask, cache -> (B, D)."""
    mixer, norm = compiler.compile(block.mixer), compiler.compile(block.mixer_norm)
    add = runtime.fused(lambda x, y: (x.astype(mx.float32) if block.float32_residual else x) + y)
    return lambda x, mask, cache: add(x, mixer(norm(x), mask, cache))
