"""Mamba's mixer and layer. Axes: B batch, T length, D width, E channels, N state a channel, R rank."""

import math

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.caching import CachedLayer
from zoo.blocks.convolution import Convolution, tokens_only
from zoo.cache import StateCache
from zoo_mamba.scan import scan

LOG2_E = math.log2(math.e)


class SelectiveStateSpace(nn.Module):
    """output(silu(gate) · (scan(x) + skip · x)), x convolved (Gu and Dao, 2023, algorithm 2 and figure 3).

    Each token makes its own step size, what it writes to the state and what it reads from it. `decay` holds
    log −A, (N, E), so that A is negative whatever is learned, and every factor exp(step · A) lies in (0, 1).
    """

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
        self.input = nn.Linear(dim, 2 * spec.hidden, bias=spec.bias)
        self.convolution = Convolution(spec.hidden, spec.kernel, spec.kernel_bias)
        self.select = nn.Linear(spec.hidden, spec.rank + 2 * spec.state, bias=False)
        self.step = nn.Linear(spec.rank, spec.hidden, bias=True)
        self.decay = mx.zeros((spec.state, spec.hidden))
        self.skip = mx.ones((spec.hidden,))
        self.output = nn.Linear(spec.hidden, dim, bias=spec.bias)
        self.activation = activation(spec.activation)
        self.gate_activation = activation("silu")  # whatever `activation` is, as in the reference

    def make_cache(self, policy=None):
        """A cache of the last K − 1 values before the convolution, and of the state."""
        return StateCache(2, policy)

    def initialise(self, key):
        """How training starts (section 3.6 and appendix C): A = −1 … −N, steps of 0.001 to 0.1, spread evenly in log."""
        spec, keys = self.spec, mx.random.split(key, 3)
        self.decay = mx.broadcast_to(mx.log(mx.arange(1.0, spec.state + 1.0))[:, None], self.decay.shape)
        steps = mx.exp(mx.random.uniform(math.log(0.001), math.log(0.1), (spec.hidden,), key=keys[0]))
        self.step.bias = steps + mx.log(-mx.expm1(-steps))  # softplus of this is `steps`
        for module, inputs, one in (
            (self.step, spec.rank, keys[1]),
            (self.convolution, spec.kernel, keys[2]),
        ):
            spread = inputs**-0.5
            module.weight = mx.random.uniform(-spread, spread, module.weight.shape, key=one)
        for module in (self.convolution, self.input, self.output):
            if "bias" in module:
                module.bias = mx.zeros_like(module.bias)

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D); mask (B, T)
        spec, dtype = self.spec, x.dtype
        before, state = (None, None) if cache is None else (cache[0], cache[1])
        if state is None:
            state = mx.zeros((x.shape[0], spec.state, spec.hidden))
        x, gate = mx.split(self.input(x), 2, axis=-1)  # (B, T, E) each
        x, before = self.convolution(tokens_only(x, mask), before, mask)
        x = tokens_only(self.activation(x), mask)  # the convolution's bias is no token's either
        step, write, read = mx.split(self.select(x), [spec.rank, spec.rank + spec.state], axis=-1)
        step = mx.logaddexp(self.step(step).astype(mx.float32), 0.0)  # (B, T, E): softplus
        step = tokens_only(step, mask)  # a step of no size leaves the state as it was
        decay = -LOG2_E * mx.power(2.0, LOG2_E * self.decay.astype(mx.float32))  # (N, E): A, for powers of 2
        write, read, x = (array.astype(mx.float32) for array in (write, read, x))
        y, state = scan(step * x, step, write, read, decay, state)
        if cache is not None:
            cache[0], cache[1] = before, state
            cache.advance(x.shape[1])
        y = (y + self.skip * x) * self.gate_activation(gate)
        return self.output(y.astype(dtype))


class MixerLayer(CachedLayer):
    """x + mixer(norm(x))."""

    def __init__(self, spec, *, dim, index=0, mixer, mixer_norm):
        super().__init__(spec, index)
        self.mixer, self.mixer_norm = mixer, mixer_norm
        self.float32_residual = spec.float32_residual

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        mixed = self.mixer(self.mixer_norm(x), mask, cache)
        return (x.astype(mx.float32) if self.float32_residual else x) + mixed
