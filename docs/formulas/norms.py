"""Norms and residual sums. Axes: B texts, T tokens, D width."""

import mlx.core as mx


def layer_norm(x, w, b, eps=1e-5):  # (…, D) -> (…, D)
    """Each token's vector with mean zero and variance one, then scaled and shifted."""
    mu = x.mean(axis=-1, keepdims=True)  # over the features of one token
    var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)
    return (x - mu) / mx.sqrt(var + eps) * w + b


def rms_norm(x, w, eps=1e-5):  # (…, D) -> (…, D)
    """Each token's vector divided by its root mean square, then scaled."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    return x / mx.sqrt(mean_square + eps) * w


def batch_norm(x, w, b, eps=1e-5):  # (B, T, D) -> (B, T, D)
    """Each feature with mean zero and variance one over all tokens of all texts."""
    mu = x.mean(axis=(0, 1), keepdims=True)  # over the texts and their tokens: (1, 1, D)
    var = ((x - mu) ** 2).mean(axis=(0, 1), keepdims=True)
    return (x - mu) / mx.sqrt(var + eps) * w + b


def post_ln(x, F, norm):  # (T, D) -> (T, D)
    """The norm after the sum, on the residual path."""
    return norm(x + F(x))


def pre_ln(x, F, norm):  # (T, D) -> (T, D)
    """The norm before the part: the residual path has sums only."""
    return x + F(norm(x))
