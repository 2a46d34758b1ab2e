"""Filters of logits. Axes: B batch, V vocabulary."""

import mlx.core as mx

NEG_INF = -float("inf")


def epsilon(logits: mx.array, cutoff: float, min_tokens_to_keep: int = 1) -> mx.array:
    """Keep the tokens whose probability is at least `cutoff`, and the likeliest in any case: (B, V) -> (B, V).

    ε-sampling: Hewitt et al., 2022, "Truncation Sampling as Language Model Desmoothing".
    """
    return _at_least(logits, mx.softmax(logits, axis=-1), cutoff, min_tokens_to_keep)


def eta(logits: mx.array, cutoff: float, min_tokens_to_keep: int = 1) -> mx.array:
    """Keep the tokens whose probability is at least η, and the likeliest in any case: (B, V) -> (B, V).

    η is the smaller of `cutoff` and √`cutoff` · exp(-H), with the entropy H in nats. η-sampling, of the same paper.
    """
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)  # (B, V)
    probabilities = mx.exp(logprobs)
    each = probabilities * mx.where(probabilities > 0, -logprobs, 0)
    entropy = each.sum(axis=-1, keepdims=True)  # (B, 1)
    least = mx.minimum(cutoff, cutoff**0.5 * mx.exp(-entropy))
    return _at_least(logits, probabilities, least, min_tokens_to_keep)


def _at_least(logits: mx.array, probabilities: mx.array, least: mx.array | float, count: int) -> mx.array:
    best = mx.topk(logits, min(count, logits.shape[-1]), axis=-1).min(axis=-1, keepdims=True)  # (B, 1)
    return mx.where((probabilities >= least) | (logits >= best), logits, NEG_INF)
