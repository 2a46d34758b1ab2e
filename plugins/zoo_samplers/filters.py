"""Filters of logits. Axes: B batch, V vocabulary."""

import mlx.core as mx

REMOVED = -float("inf")


def typical(logits: mx.array, mass: float) -> mx.array:
    """Keep the tokens whose surprise is nearest to the entropy, until they reach `mass`: (B, V) -> (B, V).

    Locally typical sampling, Meister et al., 2022, "Locally Typical Sampling", equation 8.
    """
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)  # (B, V)
    probabilities = mx.exp(logprobs)
    surprise = mx.where(probabilities > 0, -logprobs, 0)
    entropy = (probabilities * surprise).sum(axis=-1, keepdims=True)  # (B, 1)
    distance = mx.where(probabilities > 0, mx.abs(surprise - entropy), float("inf"))
    order = mx.argsort(distance, axis=-1)  # nearest first
    ordered = mx.take_along_axis(probabilities, order, axis=-1)
    before = mx.cumsum(ordered, axis=-1) - ordered  # the mass of all that are nearer
    first = mx.arange(logits.shape[-1]) == 0  # one token is always kept
    kept = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, (before < mass) | first, axis=-1)
    return mx.where(kept, logits, REMOVED)


def top_n_sigma(logits: mx.array, n: float) -> mx.array:
    """Keep the logits within `n` standard deviations of the largest: (B, V) -> (B, V).

    Tang et al., 2024, "Top-nσ: Not All Logits Are You Need", section 3. Tokens removed before do not count.
    """
    there = logits > REMOVED
    count = there.sum(axis=-1, keepdims=True)
    mean = mx.where(there, logits, 0).sum(axis=-1, keepdims=True) / count
    spread = mx.sqrt(mx.where(there, (logits - mean) ** 2, 0).sum(axis=-1, keepdims=True) / count)
    return mx.where(logits >= logits.max(axis=-1, keepdims=True) - n * spread, logits, REMOVED)
