"""Random draws of tokens: a function for every row of logits (B, V), and random keys."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import mlx.core as mx

from zoo.generation.sampling.filters import draw_processors
from zoo.generation.sampling.logits import record_of, stages_of

if TYPE_CHECKING:
    from zoo.generation.settings import Settings


def sampler(settings: Settings) -> Callable[[mx.array], mx.array]:
    """A function from logits (…, V) to ids (…) that applies the temperature and the filters. With a seed its draws repeat."""
    processors, record = draw_processors(settings), record_of(settings)
    keys = random_keys(settings.seed)

    def draw(logits: mx.array) -> mx.array:
        stages = list(stages_of(logits, processors))
        last = stages[-1].logits
        tokens = greedy(last) if settings.greedy else mx.random.categorical(last, key=next(keys))
        if record is not None:
            record(stages, tokens)
        return tokens

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
