"""A decoder's look at the source. Axes: B batch, T target length, S source length, D width, H heads, K head width."""

import mlx.core as mx

from zoo.blocks.attention import Attention
from zoo.blocks.layer import Layer
from zoo.cache import CrossCache


class CrossAttention(Attention):
    """softmax(Q Kᵀ · scale + mask) V with Q of the target, K and V of the source (Vaswani et al., 2017, 3.2.3)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__(spec.attention(), dim=dim, index=index)

    def __call__(self, x, memory, mask=None, cache=None):  # (B, T, D), (B or 1, S, D) -> (B, T, D)
        """`memory` is the encoder's output; a cache that has its keys and values already makes it needless."""
        queries = self.split(self.query(x), self.heads)  # (B, H, T, K)
        if cache is not None and cache.keys is not None:
            keys, values = cache.keys, cache.values
        else:
            keys = self.split(self.key(memory), self.kv_heads)  # (B, G, S, K)
            values = self.split(self.value(memory), self.kv_heads)  # (B, G, S, K)
            if cache is not None:
                cache.keys, cache.values = keys, values
        if keys.shape[0] != x.shape[0]:  # one source for all rows, as in a beam search
            keys = mx.broadcast_to(keys, (x.shape[0], *keys.shape[1:]))
            values = mx.broadcast_to(values, (x.shape[0], *values.shape[1:]))
        return self.output(self.merge(self.mix(queries, keys, values, mask)))  # (B, T, D)


class CrossLayer(Layer):
    """Three residual sums: the target's mixer, the look at the source, the feed-forward. Norms as in `Layer`."""

    def __init__(self, spec, *, dim, index=0, cross, cross_norm, **parts):
        super().__init__(spec, dim=dim, index=index, **parts)
        self.cross, self.cross_norm = cross, cross_norm

    def make_cache(self, policy=None):
        """The mixer's cache, with room for the source's keys and values."""
        return CrossCache(self.mixer.make_cache(policy))

    def __call__(self, x, mask=None, cache=None, memory=None, memory_mask=None):  # (B, T, D) -> (B, T, D)
        own = None if cache is None else cache.mixer
        if self.placement == "pre":
            x = x + self.mixer(self.mixer_norm(x), mask, own)
            x = x + self.cross(self.cross_norm(x), memory, memory_mask, cache)
            return x + self.feedforward(self.feedforward_norm(x))
        x = self.mixer_norm(x + self.mixer(x, mask, own))
        x = self.cross_norm(x + self.cross(x, memory, memory_mask, cache))
        return self.feedforward_norm(x + self.feedforward(x))
