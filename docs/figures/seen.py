"""What a pocket computes on held-out sentences of its corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import mlx.core as mx
import numpy as np

import zoo
from zoo.training.corpora import corpus


def held_out(count: int) -> list[str]:
    """So many sentences of the atlas that no pocket saw in training."""
    return list(islice(corpus("atlas", "generate").validation(), count))


def values_on(
    loaded: zoo.Loaded, sentences: Sequence[str], addresses: Sequence[str]
) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """For each sentence its ids, and the values (T, …) at the addresses while the model reads it."""
    found: dict[str, mx.array] = {}

    def keeping(address: str) -> Callable[[mx.array], mx.array]:
        def keep(value: mx.array) -> mx.array:
            found[address] = value
            return value

        return keep

    with zoo.intervene(loaded, {address: keeping(address) for address in addresses}):
        for sentence in sentences:
            ids = loaded.tokenizer.encode(sentence)
            mx.eval(loaded.model(mx.array([ids])))
            yield ids, [np.array(found[address])[0] for address in addresses]
