"""Multi-head and grouped-query attention.

Axes: B batch, T query length, S key length, D width, H heads, G key/value heads, K width of a head.
"""

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.position import RoPE
from zoo.cache import Cache, KVCache, WindowCache


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

    def __call__(self, x, mask=None, cache=None):  # (B, T, D) -> (B, T, D)
        queries, keys, values = self.project(x)
        offset = 0 if cache is None else cache.offset
        late = turns_late(self.rope, cache)
        queries, keys = self.rotate(queries, offset), keys if late else self.rotate(keys, offset)
        if cache is not None:
            keys, values = cache.update_and_fetch(keys, values)  # (B, G, S, K)
        if late:
            keys = self.rotate(keys, offset + x.shape[1] - keys.shape[2])
        return self.output(self.merge(self.mix(queries, keys, values, mask)))

    # The steps, in the order in which they run. A subclass changes one of them and leaves the others.

    def project(self, x):
        """The queries (B, H, T, K), keys and values (B, G, T, K) of x (B, T, D); queries and keys are normalised."""
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        keys = self.split(self.key(x), self.kv_heads)  # (B, G, T, K)
        values = self.split(self.value(x), self.kv_heads)  # (B, G, T, K)
        if "query_norm" in self:
            queries = self.query_norm(queries)
        if "key_norm" in self:
            keys = self.key_norm(keys)
        return queries, keys, values

    def split(self, x, heads):
        """A projection (B, T, heads·K), one head beside the other: (B, heads, T, K)."""
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, self.head_dim).transpose(0, 2, 1, 3)

    def rotate(self, x, offset):
        """Queries (B, H, T, K) or keys (B, G, T, K) turned by their positions, the first of which is `offset`."""
        return x if self.rope is None else self.rope(x, offset)

    def mix(self, queries, keys, values, mask):
        """softmax(Q Kᵀ · scale + mask) V: (B, H, T, K), two of (B, G, S, K) -> (B, H, T, K).

        `mask` is None, "causal" or an array; `zoo.blocks.mask.dense` makes an array of any of them.
        """
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self.scale, mask=mask)

    def merge(self, mixed):
        """What the heads give, (B, H, T, K), side by side for the output's projection: (B, T, H·K)."""
        batch, _, length, _ = mixed.shape
        return mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def turns_late(rope, cache):
    """Whether cached keys are turned anew at every step, because the length of the text changes their angles.

    mlx-lm's caches do not promise the order of what they give, so that keys enter those already turned.
    """
    return isinstance(rope, RoPE) and rope.depends_on_length and isinstance(cache, Cache)
