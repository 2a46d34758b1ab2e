"""How tokens are drawn: the distribution's settings, and a function that draws for every row of logits (B, V)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from numbers import Integral, Real

import mlx.core as mx

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.choosing.filters import Filter, narrowing
from zoo.generation.choosing.plugins import PluginFilter


@frozen()
class Sampling(Frozen):
    """How the next token is chosen. Temperature 0 is greedy; then the other settings have nothing to do.

    `top_k`: the k likeliest (0: all). `top_p`: the smallest set whose probabilities sum to at least p. `min_p`: those at
    least p times as likely as the likeliest. `typical_p`: those about as surprising as expected, until they reach p.
    `top_n_sigma`: those within n standard deviations of the largest logit (0: all). `filters`: those of plugins.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    filters: tuple[PluginFilter, ...] = ()
    typical_p: float = 1.0
    top_n_sigma: float = 0.0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma"):
            value = getattr(self, name)
            kind, what = (Integral, "a whole number") if name == "top_k" else (Real, "a number")
            if isinstance(value, bool) or not isinstance(value, kind):
                raise PromptError(f"`{name}` must be {what}, got {value!r}")
        if self.temperature != 0 and not 1e-30 <= self.temperature <= 1e30:
            raise PromptError(
                f"`temperature` must be 0 (greedy) or more, at most 1e30, got {self.temperature}"
            )
        if self.top_k < 0:
            raise PromptError(f"`top_k` must be 0 (off) or more, got {self.top_k}")
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                raise PromptError(f"`{name}` must lie in (0, 1], got {getattr(self, name)}")
        if not 0 <= self.min_p <= 1:
            raise PromptError(f"`min_p` must lie in [0, 1], got {self.min_p}")
        if not 0 <= self.top_n_sigma <= 1e30:
            raise PromptError(f"`top_n_sigma` must be 0 (off) or more, at most 1e30, got {self.top_n_sigma}")


def sampler(sampling: Sampling, seed: int | None = None) -> Callable[[mx.array], mx.array]:
    """The function from logits (B, V) to ids (B,). With a seed its draws repeat."""
    if sampling.temperature == 0:
        return greedy
    keys = random_keys(seed)
    filters: list[Filter] = [*(narrow for _, _, narrow in narrowing(sampling)), *sampling.filters]

    def draw(logits: mx.array) -> mx.array:
        logits = logits.astype(mx.float32) / sampling.temperature
        for narrow in filters:
            logits = narrow(logits)
        return mx.random.categorical(logits, key=next(keys))

    return draw


def first_key(seed: int | None) -> mx.array:
    """The random key of a seed, of a random one where it is None."""
    return mx.random.key(secrets.randbits(63) if seed is None else seed)


def random_keys(seed: int | None) -> Iterator[mx.array]:
    """Independent random keys without end."""
    key = first_key(seed)
    while True:
        key, use = mx.random.split(key)
        yield use


def greedy(logits: mx.array) -> mx.array:
    """The likeliest token: (B, V) -> (B,)."""
    return mx.argmax(logits, axis=-1)
