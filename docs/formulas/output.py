"""From the last vector to a token. Axes: D width, V vocabulary."""

import mlx.core as mx

from formulas.attention import softmax


def probabilities(h, W_head, norm, tau=1.0):  # (D) -> (V)
    """The probability of each token of the vocabulary, at the temperature τ."""
    z = W_head @ norm(h)  # (V), the logits
    return softmax(z / tau)


def top_k(p, k):  # (V) -> (V)
    """The k likeliest tokens, scaled to sum to one."""
    order = mx.argsort(-p)  # the likeliest first
    kept = mx.zeros_like(p)
    kept[order[:k]] = p[order[:k]]
    return kept / kept.sum()


def top_p(p, mass):  # (V) -> (V)
    """The fewest of the likeliest tokens that reach the sum `mass`, scaled to sum to one."""
    order = mx.argsort(-p)
    sums = mx.cumsum(p[order])  # p_1, p_1 + p_2, …
    n = (sums < mass).sum().item() + 1
    return top_k(p, n)
