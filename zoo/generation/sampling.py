"""Logits to a token id: pure functions on (B, V) arrays.

The order is temperature, then top-k, top-p, min-p and a plugin's samplers on what remains, then a draw from the
renormalised rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

import mlx.core as mx

from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen

REMOVED = -float("inf")  # the logit of a token that must not be drawn


@frozen()
class Sampling(Frozen):
    """How the next token is chosen. Temperature 0 is greedy; then the other settings have nothing to do.

    `top_k`: the k likeliest (0: all). `top_p`: the smallest set whose probabilities sum to at least p (Holtzman et al.,
    2019). `min_p`: those at least p times as likely as the likeliest (Nguyen et al., 2024). `filters`: functions from
    logits (B, V) to logits (B, V), those of plugins.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    filters: tuple[Callable[[mx.array], mx.array], ...] = ()

    def __post_init__(self) -> None:
        for name, value, kind, what in (
            ("temperature", self.temperature, Real, "a number"),
            ("top_k", self.top_k, Integral, "a whole number"),
            ("top_p", self.top_p, Real, "a number"),
            ("min_p", self.min_p, Real, "a number"),
        ):
            if isinstance(value, bool) or not isinstance(value, kind):
                raise PromptError(f"`{name}` must be {what}, got {value!r}")
        if self.temperature != 0 and not 1e-30 <= self.temperature <= 1e30:
            raise PromptError(
                f"`temperature` must be 0 (greedy) or more, at most 1e30, got {self.temperature}"
            )
        if self.top_k < 0:
            raise PromptError(f"`top_k` must be 0 (off) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise PromptError(f"`top_p` must lie in (0, 1], got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise PromptError(f"`min_p` must lie in [0, 1], got {self.min_p}")


def sampler(sampling: Sampling, seed: int | None = None) -> Callable[[mx.array], mx.array]:
    """The function from logits (B, V) to ids (B,). With a seed its draws repeat."""
    if sampling.temperature == 0:
        return greedy
    keys = _keys(seed)

    def draw(logits: mx.array) -> mx.array:
        logits = logits.astype(mx.float32) / sampling.temperature
        if sampling.top_k:
            logits = top_k(logits, sampling.top_k)
        if sampling.top_p < 1:
            logits = top_p(logits, sampling.top_p)
        if sampling.min_p:
            logits = min_p(logits, sampling.min_p)
        for narrow in sampling.filters:
            logits = narrow(logits)
        return mx.random.categorical(logits, key=next(keys))

    return draw


def _keys(seed: int | None):
    """Independent random keys without end."""
    if seed is None:
        import secrets

        seed = secrets.randbits(63)
    key = mx.random.key(seed)
    while True:
        key, use = mx.random.split(key)
        yield use


def greedy(logits: mx.array) -> mx.array:
    """The likeliest token: (B, V) -> (B,)."""
    return mx.argmax(logits, axis=-1)


def top_k(logits: mx.array, k: int) -> mx.array:
    """Keep the k largest logits of each row, (B, V) -> (B, V)."""
    if k >= logits.shape[-1]:
        return logits
    # By rank and not by a threshold, so that equal logits do not let in more than k.
    rest = mx.argpartition(-logits, k - 1, axis=-1)[..., k:]
    return mx.put_along_axis(logits, rest, mx.array(REMOVED, logits.dtype), axis=-1)


def top_p(logits: mx.array, p: float) -> mx.array:
    """Keep the smallest set of tokens whose probabilities sum to at least p, (B, V) -> (B, V)."""
    order = mx.argsort(-logits, axis=-1)
    probabilities = mx.softmax(mx.take_along_axis(logits, order, axis=-1), axis=-1)
    before = mx.cumsum(probabilities, axis=-1) - probabilities  # the mass of all likelier tokens
    kept = mx.put_along_axis(mx.zeros(logits.shape, mx.bool_), order, before < p, axis=-1)
    return mx.where(kept, logits, REMOVED)


def min_p(logits: mx.array, p: float) -> mx.array:
    """Keep tokens at least p times as likely as the likeliest, (B, V) -> (B, V)."""
    best = logits.max(axis=-1, keepdims=True)
    return mx.where(logits >= best + mx.log(mx.array(p)), logits, REMOVED)


def check_numbers(highest: float, what: str) -> None:
    """ZooError unless `highest`, the largest of some logits, is a number: NaN among them makes it NaN."""
    if not math.isfinite(highest):
        raise ZooError(
            f"{what}: the model gives {'NaN' if math.isnan(highest) else 'infinity'} where numbers belong; its weights "
            "are damaged, or too large for the type it computes in: with `dtype` float32 it holds more than with float16"
        )


def logprobs(logits: mx.array) -> mx.array:
    """Log-probabilities of the model itself, in float32, before temperature and filters: (B, V) -> (B, V)."""
    logits = logits.astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
