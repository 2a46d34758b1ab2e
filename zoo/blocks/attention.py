"""Multi-head and grouped-query attention.

Axes: B batch, T query length, S key length, D width, H heads, G key/value heads, K width of a head.
"""

import mlx.core as mx
import mlx.nn as nn

from zoo.cache import KVCache, WindowCache


class Attention(nn.Module):
    """softmax(Q Kᵀ · scale + mask) V for each head, heads joined and projected (Vaswani et al., 2017, eq. 1).

    With fewer key/value heads than heads, H/G queries share one (Ainslie et al., 2023).
    """

    def __init__(self, spec, *, dim, index=0, rope=None, query_norm=None, key_norm=None):
        super().__init__()
        self.spec = spec
        self.heads, self.kv_heads = spec.heads, spec.kv_heads or spec.heads
        self.head_dim = spec.head_width(dim)
        self.scale = spec.scale or self.head_dim**-0.5
        self.query = nn.Linear(dim, self.heads * self.head_dim, bias=spec.bias)
        self.key = nn.Linear(dim, self.kv_heads * self.head_dim, bias=spec.bias)
        self.value = nn.Linear(dim, self.kv_heads * self.head_dim, bias=spec.bias)
        self.output = nn.Linear(self.heads * self.head_dim, dim, bias=spec.output_bias)
        if query_norm is not None:
            self.query_norm = query_norm
        if key_norm is not None:
            self.key_norm = key_norm
        self.rope = rope

    def make_cache(self, policy=None):
        """A cache of keys and values, of the last `window` only when there is one."""
        return KVCache(policy) if self.spec.window is None else WindowCache(self.spec.window, policy)

    def split(self, x, heads):
        """(B, T, heads·K) -> (B, heads, T, K)."""
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, self.head_dim).transpose(0, 2, 1, 3)

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        keys = self.split(self.key(x), self.kv_heads)  # (B, G, T, K)
        values = self.split(self.value(x), self.kv_heads)  # (B, G, T, K)
        if "query_norm" in self:
            queries = self.query_norm(queries)
        if "key_norm" in self:
            keys = self.key_norm(keys)
        offset = 0 if cache is None else cache.offset
        late = turns_late(self.rope, cache)
        if self.rope is not None:
            queries = self.rope(queries, offset)
            keys = keys if late else self.rope(keys, offset)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        if late:
            keys = self.rope(keys, offset + x.shape[1] - keys.shape[2])
        mixed = self.mix(queries, keys, values, mask)  # (B, H, T, K)
        return self.output(mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))  # (B, T, H·K) -> (B, T, D)

    def mix(self, queries, keys, values, mask):
        """softmax(Q Kᵀ · scale + mask) V: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K)."""
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=mask)


def turns_late(rope, cache):
    """Whether cached keys are turned anew at every step, because the length of the text changes their angles.

    mlx-lm's caches do not promise the order of what they give, so that keys enter those already turned.
    """
    return getattr(rope, "depends_on_length", False) and cache is not None and not hasattr(cache, "make_mask")
