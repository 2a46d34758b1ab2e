"""Whole numbers of a few bits, packed one after the other from the lowest bit of the first 32-bit word on.

Axes: … others, W words, N numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import mlx.core as mx

from zoo.checkpoint.packed import WORD


def unpack(words: mx.array, bits: int, order: Sequence[int] | None = None) -> mx.array:
    """The numbers in words: (…, W) of 32 bits -> (…, N) uint8; bits at the end that make no whole run are zeros.

    `order` names which of the numbers that share a run of words comes first, second and so on.
    """
    run, count = _run(bits)
    words = words.view(mx.uint32)
    if words.shape[-1] % run:
        short = run - words.shape[-1] % run
        words = mx.concatenate([words, mx.zeros((*words.shape[:-1], short), mx.uint32)], axis=-1)
    runs = words.reshape(*words.shape[:-1], -1, run)
    numbers = []
    for place in order or range(count):
        word, low = divmod(place * bits, WORD)
        number = runs[..., word] >> low
        if low + bits > WORD:  # it goes on in the next word
            number = number | (runs[..., word + 1] << (WORD - low))
        numbers.append((number & (2**bits - 1)).astype(mx.uint8))
    return mx.stack(numbers, axis=-1).flatten(-2)


def pack(numbers: mx.array, bits: int) -> mx.array:
    """What `unpack` undoes: (…, N) uint8 -> (…, W) uint32, where N fills whole runs of words."""
    run, count = _run(bits)
    runs = numbers.reshape(*numbers.shape[:-1], -1, count)
    words: list[mx.array | None] = [None] * run
    for place in range(count):
        word, low = divmod(place * bits, WORD)
        number = runs[..., place].astype(mx.uint32)
        for at, part in ((word, number << low), (word + 1, number >> (WORD - low) if low else None)):
            if part is not None and at < run and (at == word or low + bits > WORD):
                held = words[at]
                words[at] = part if held is None else held | part
    return mx.stack([word for word in words if word is not None], axis=-1).flatten(-2)


def _run(bits: int) -> tuple[int, int]:
    """The fewest words that hold a whole count of numbers, and that count."""
    return bits // gcd(bits, WORD), WORD // gcd(bits, WORD)
