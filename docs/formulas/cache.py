"""One step of decoding with a cache. Axes: n tokens so far, D width, d width of a head."""

import math

import mlx.core as mx

from formulas.attention import softmax


def decode_step(x, K, V, W_Q, W_K, W_V):  # (1, D), (n − 1, d), (n − 1, d) -> (1, d), (n, d), (n, d)
    """One head's result for the new token, and the cache with its key and value."""
    q, k, v = x @ W_Q, x @ W_K, x @ W_V  # of the new token alone, (1, d) each
    K = mx.concatenate([K, k])  # (n, d)
    V = mx.concatenate([V, v])
    o = softmax(q @ K.T / math.sqrt(K.shape[-1])) @ V  # no mask: all n tokens may be seen
    return o, K, V
