"""Version 1 of the contract: modules. NEVER EDIT THIS FILE: see pyproject.toml.

Axes: B batch, T query length, S key length, D width, H heads, K width of a head.
"""

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.activation import activation
from zoo.blocks.mask import dense
from zoo.cache import KVCache, StateCache, WindowCache


class LengthNorm(nn.Module):
    """x / ‖x‖ · gain."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.gain = mx.array([dim**0.5])
        self.eps = spec.eps

    def __call__(self, x):  # (B, T, D) -> (B, T, D)
        wide = x.astype(mx.float32)
        length = mx.sqrt(mx.square(wide).sum(axis=-1, keepdims=True) + self.eps)
        return (wide / length).astype(x.dtype) * self.gain


class PlainAttention(nn.Module):
    """softmax(Q Kᵀ / √K + mask) V, with nothing fused."""

    def __init__(self, spec, *, dim, index=0, rope=None, head_norm=None):
        super().__init__()
        self.spec, self.rope = spec, rope
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        if head_norm is not None:
            self.head_norm = head_norm

    def make_cache(self, policy=None):
        """A cache, of the window only when there is one."""
        return WindowCache(self.spec.window, policy) if self.spec.window else KVCache(policy)

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        batch, length, dim = x.shape
        shape = (batch, length, self.spec.heads, dim // self.spec.heads)
        queries, keys, values = (
            linear(x).reshape(shape).transpose(0, 2, 1, 3) for linear in (self.query, self.key, self.value)
        )  # (B, H, T, K)
        if "head_norm" in self:
            queries, keys = self.head_norm(queries), self.head_norm(keys)
        if self.rope is not None:
            offset = 0 if cache is None else cache.offset
            queries, keys = self.rope(queries, offset), self.rope(keys, offset)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, H, S, K)
        scores = queries @ keys.swapaxes(-1, -2) * shape[-1] ** -0.5  # (B, H, T, S)
        seen = dense(mask, length, keys.shape[2])
        if seen is not None:
            scores = mx.where(seen, scores, mx.finfo(scores.dtype).min)
        mixed = mx.softmax(scores, axis=-1, precise=True) @ values  # (B, H, T, K)
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(batch, length, dim))


class Memory(nn.Module):
    """output(state), state ← decay · state + (1 − decay) · x, a token at a time."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.decay = spec.decay
        self.output = nn.Linear(dim, dim, bias=False)

    def make_cache(self, policy=None):
        """A cache of the state after the last token."""
        return StateCache(1, policy)

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D); mask (B, T)
        state = cache[0] if cache is not None and cache[0] is not None else mx.zeros_like(x[:, 0])
        states = []
        for t in range(x.shape[1]):
            new = self.decay * state + (1 - self.decay) * x[:, t]  # (B, D)
            state = new if mask is None else mx.where(mask[:, t, None], new, state)
            states.append(state)
        if cache is not None:
            cache[0] = state
            cache.advance(x.shape[1])
        return self.output(mx.stack(states, axis=1))


class GatedLayer(nn.Module):
    """x + σ(gate) · (mixer(norm(x)) + feedforward(norm(x)))."""

    def __init__(self, spec, *, dim, index=0, norm, mixer, feedforward):
        super().__init__()
        self.norm, self.mixer, self.feedforward = norm, mixer, feedforward
        self.gate = mx.zeros((1,))
        self.open = activation("sigmoid")

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        normed = self.norm(x)
        return x + self.open(self.gate) * (self.mixer(normed, mask, cache) + self.feedforward(normed))
