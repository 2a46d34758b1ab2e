"""Whole numbers of a few bits, packed consecutively from the lowest bit of the first 32-bit word.

A run is the fewest words that hold a whole count of numbers: 8 numbers a word for 4 bits, 32 in three words for 3.

Axes: … others, W words, N numbers, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import mlx.core as mx

from zoo.checkpoint.quantized_matrix import WORD


def run_of(bits: int) -> tuple[int, int]:
    """The words of a run, and the numbers in it."""
    return bits // gcd(bits, WORD), WORD // gcd(bits, WORD)


def unpack(words: mx.array, bits: int, order: Sequence[int] | None = None) -> mx.array:
    """The numbers in words, (…, W) -> (…, N) uint8; what is missing of the last run is zeros.

    `order` names which number of a run comes first, second and so on.
    """
    length, count = run_of(bits)
    words = words.view(mx.uint32)
    if words.shape[-1] % length:
        missing = mx.zeros((*words.shape[:-1], -words.shape[-1] % length), mx.uint32)
        words = mx.concatenate([words, missing], axis=-1)
    runs = words.reshape(*words.shape[:-1], -1, length)
    numbers = []
    for position in order or range(count):
        word, low = divmod(position * bits, WORD)
        number = runs[..., word] >> low
        if low + bits > WORD:
            number = number | runs[..., word + 1] << (WORD - low)
        numbers.append((number & (2**bits - 1)).astype(mx.uint8))
    return mx.stack(numbers, axis=-1).flatten(-2)


def repeated(number: int, bits: int) -> list[int]:
    """The words of a run of one number."""
    length, count = run_of(bits)
    whole = sum(number << bits * position for position in range(count))
    return [whole >> WORD * word & (2**WORD - 1) for word in range(length)]


def reorder(words: mx.array, bits: int, order: mx.array) -> mx.array:
    """Reorder numbers packed along the first axis, (W, O), by `order` (N,), in whole runs."""
    length, count = run_of(bits)
    words = words.view(mx.uint32)
    runs: dict[int, mx.array] = {}
    for position in range(count):
        bit = order[position::count].astype(mx.uint32) * bits
        word, low = bit // WORD, (bit % WORD)[:, None]
        number = words[word] >> low
        if length > 1:  # numbers that go on in the next word
            over = low + bits > WORD
            rest = words[mx.minimum(word + 1, words.shape[0] - 1)] << mx.where(over, WORD - low, 0)
            number = number | mx.where(over, rest, 0)
        number = number & (2**bits - 1)
        at, shift = divmod(position * bits, WORD)
        runs[at] = runs[at] | number << shift if at in runs else number << shift
        if shift + bits > WORD:
            runs[at + 1] = number >> (WORD - shift)
    return mx.stack([runs[at] for at in range(length)], axis=1).flatten(0, 1)


def transpose_nibbles(words: mx.array) -> list[mx.array]:
    """Eight rows of words of eight 4-bit numbers, (8R, C): number k of row r becomes number r of the k-th of the list.

    Each of eight (R, C). Halves of the squares change places, then their quarters (Warren, Hacker's Delight, 7-3).
    """
    blocks = words.view(mx.uint32).reshape(-1, 8, words.shape[-1])
    rows = [blocks[:, row] for row in range(8)]
    for step, mask in ((4, 0x0000FFFF), (2, 0x00FF00FF), (1, 0x0F0F0F0F)):
        shift = 4 * step
        for row in range(8):
            if not row & step:
                differ = (rows[row] >> shift ^ rows[row + step]) & mask
                rows[row + step] = rows[row + step] ^ differ
                rows[row] = rows[row] ^ differ << shift
    return rows
