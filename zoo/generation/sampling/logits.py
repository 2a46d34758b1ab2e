"""Logits by themselves: whether they are numbers, their log-probabilities, and tokens taken out of them.

Axes: B batch, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from zoo.errors import ZooError

NEG_INF = -float("inf")  # the logit of a token that must not be chosen


def check_numbers(highest: float, what: str) -> None:
    """ZooError unless `highest`, the largest of some logits, is a number: NaN among them makes it NaN."""
    if not math.isfinite(highest):
        raise ZooError(
            f"{what}: the model gives {'NaN' if math.isnan(highest) else 'infinity'} where numbers belong; its weights "
            "are damaged, or too large for the type it computes in: with `dtype` float32 it holds more than with float16"
        )


def logprobs(logits: mx.array) -> mx.array:
    """Log-probabilities of the model itself, in float32, before any change: (…, V) -> (…, V)."""
    logits = logits.astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def removed(logits: mx.array, tokens: Sequence[int]) -> mx.array:
    """The logits with these tokens' at minus infinity, (…, V) -> (…, V); ids outside the vocabulary change nothing."""
    known = [token for token in tokens if 0 <= token < logits.shape[-1]]
    if not known:
        return logits
    gone = mx.zeros(logits.shape[-1:], mx.bool_)
    gone[mx.array(known)] = True
    return mx.where(gone, NEG_INF, logits)


def forced(logits: mx.array, tokens: Sequence[int]) -> mx.array:
    """Zero for these tokens, minus infinity for all others: (…, V) -> (…, V)."""
    kept = mx.full(logits.shape[-1:], NEG_INF, logits.dtype)
    kept[mx.array(list(tokens))] = 0.0
    return mx.broadcast_to(kept, logits.shape)
