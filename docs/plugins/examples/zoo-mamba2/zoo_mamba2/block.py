"""Mamba-2's mixer. Axes: B batch, T length, L tokens of a chunk, D width, H heads, P width of a head, N state,
G groups, E channels that are convolved."""

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.convolution import Convolution, tokens_only
from zoo.cache import StateCache


class StateSpace(nn.Module):
    """output(norm(silu(gate) · (scan(x) + skip · x))), x convolved (Dao and Gu, 2024, section 7 and figure 6)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        self.input = nn.Linear(dim, spec.inner + spec.channels + spec.heads, bias=spec.bias)
        self.convolution = Convolution(spec.channels, spec.kernel, spec.kernel_bias)
        self.step, self.decay, self.skip = mx.zeros(spec.heads), mx.zeros(spec.heads), mx.ones(spec.heads)
        if spec.eps is not None:
            self.gain = mx.ones(spec.inner)
        self.output = nn.Linear(spec.inner, dim, bias=spec.output_bias)
        self.activation, self.silu = activation(spec.activation), activation("silu")

    def make_cache(self, policy=None):
        return StateCache(2, policy)  # the last values before the convolution, and the state

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D); mask (B, T)
        spec, (batch, length, _), dtype = self.spec, x.shape, x.dtype
        before, state = (None, None) if cache is None else (cache[0], cache[1])
        gate, mixed, step = mx.split(self.project(x), [spec.inner, spec.inner + spec.channels], axis=-1)
        mixed, before = self.convolution(tokens_only(mixed, mask), before, mask)
        mixed = tokens_only(self.activation(mixed), mask).astype(mx.float32)  # (B, T, E)
        x, write, read = mx.split(mixed, [spec.inner, spec.inner + spec.groups * spec.state], axis=-1)
        x, write, read = self.heads(x, spec.heads), self.heads(write), self.heads(read)  # (B, H, T, P or N)
        step = mx.logaddexp(step.astype(mx.float32) + self.step, 0.0)  # softplus
        step = tokens_only(step, mask).swapaxes(1, 2)  # (B, H, T): a step of 0 leaves the state as it was
        rate = step * -mx.exp(self.decay.astype(mx.float32))[:, None]  # (B, H, T), negative
        y, state = scan(x * step[..., None], rate, write, read, state, spec.chunk)
        y = (y + self.skip[:, None, None] * x).swapaxes(1, 2).reshape(batch, length, -1)
        if cache is not None:
            cache[0], cache[1] = before, state
            cache.advance(length)
        return self.output(self.gated(y, gate.astype(mx.float32)).astype(dtype))

    def project(self, x):  # (B, T, D) -> (B, T, H·P + E + H)
        return self.input(x)  # gate, what is convolved, steps

    def heads(self, x, count=None):  # (B, T, heads or groups times N) -> (B, H, T, N); groups' heads share
        parts = x.reshape(*x.shape[:2], count or self.spec.groups, -1).swapaxes(1, 2)
        return mx.repeat(parts, self.spec.heads // parts.shape[1], axis=1)

    def gated(self, y, gate):  # (B, T, H·P) twice -> (B, T, H·P)
        return self.norm(y * self.silu(gate))

    def norm(self, y):  # (B, T, H·P) -> (B, T, H·P), each group by itself
        grouped = y.reshape(*y.shape[:2], self.spec.groups, -1)
        return mx.fast.rms_norm(grouped, None, self.spec.eps).reshape(y.shape) * self.gain


def scan(x, rate, write, read, state, chunk):
    """h_t = exp(rate_t) h_(t−1) + x_t ⊗ write_t and y_t = h_t read_t, a chunk at a time (section 6).

    x (B, H, T, P), rate (B, H, T), write and read (B, H, T, N), state (B, H, P, N); gives y and the last state.
    """
    outputs = []
    state = mx.zeros((x.shape[3], write.shape[3])) if state is None else state
    for start in range(0, x.shape[2], chunk):
        xc, rc, wc, cc = (array[:, :, start : start + chunk] for array in (x, rate, write, read))
        total = mx.cumsum(rc, axis=-1)  # (B, H, L): the log of what is left of the state before the chunk
        since = total[..., :, None] - total[..., None, :]  # (B, H, L, L): of what token s wrote, at token t
        kept = mx.exp(mx.where(mx.tri(rc.shape[2], dtype=mx.bool_), since, -mx.inf))
        within = (cc @ wc.swapaxes(-1, -2) * kept) @ xc  # (B, H, L, P): like attention without a softmax
        outputs.append(within + mx.exp(total)[..., None] * (cc @ state.swapaxes(-1, -2)))
        left = mx.exp(total[..., -1:] - total)[..., None]  # (B, H, L, 1): of each token's, at the end
        state = mx.exp(total[..., -1])[..., None, None] * state + (xc * left).swapaxes(-1, -2) @ wc
    return mx.concatenate(outputs, axis=2), state
