"""Linear attention. Axes: B batch, T length, D width, H heads, K width of a head."""

import mlx.core as mx
import mlx.nn as nn

from zoo.cache import StateCache

LEAST = 1e-6  # of a sum of weights: a column that holds no token has none


class LinearAttention(nn.Module):
    """y_t = Σ_s φ(q_t)·φ(k_s) v_s / Σ_s φ(q_t)·φ(k_s), s ≤ t, φ(x) = elu(x) + 1 (section 3.2, equations 9 to 12)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.heads = spec.heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)

    def make_cache(self, policy=None):
        """Σ φ(k) ⊗ v, (B, H, K, K), and Σ φ(k), (B, H, K), of the tokens that were read."""
        return StateCache(2, policy)

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D); mask (B, T)
        queries, keys, values = self.project(x)
        if mask is not None:  # a column that holds no token adds nothing
            keys, values = (mx.where(mask[:, None, :, None], array, 0) for array in (keys, values))
        state, total = (None, None) if cache is None else (cache[0], cache[1])
        weights = mx.tril(
            queries @ keys.swapaxes(-1, -2)
        )  # (B, H, T, T), of the tokens that are read together
        mixed, divisor = weights @ values, weights.sum(axis=-1, keepdims=True)
        if state is not None:
            mixed, divisor = mixed + queries @ state, divisor + queries @ total[..., None]
        if cache is not None:
            new, added = keys.swapaxes(-1, -2) @ values, keys.sum(axis=2)
            cache[0] = self.keep(new if state is None else state + new)
            cache[1] = added if total is None else total + added
            cache.advance(x.shape[1])
        return self.output((mixed / mx.maximum(divisor, LEAST)).transpose(0, 2, 1, 3).flatten(2))

    def project(self, x):  # (B, T, D) -> three of (B, H, T, K)
        """The features of queries and keys, and the values."""
        queries, keys, values = (self.split(part(x)) for part in (self.query, self.key, self.value))
        return feature(queries), feature(keys), values

    def split(self, x):  # (B, T, D) -> (B, H, T, K)
        """The heads of a projection."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)

    def keep(self, state):  # (B, H, K, K)
        """The state for the next token."""
        return state


def feature(x):
    """φ(x) = elu(x) + 1, above zero."""
    return mx.where(x > 0, x + 1, mx.exp(mx.minimum(x, 0)))
