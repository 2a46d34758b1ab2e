"""Packed numbers to floats by a table of the floats of each byte. MLX's CPU backend unpacks one number at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.cpu.arithmetic import memory
from zoo.machine import threads

DEQUANTIZED_PIECE = 2**19  # numbers at once: with fewer, threads wait for each other between the steps
ITEMS = {
    2: np.complex128,
    4: np.float64,
    8: np.float32,
}  # by bits (`zoo.cpu.floats.TABLE_BITS`), as wide as the floats of one byte


def dequantize_by_table(words: mx.array, scales: mx.array, biases: mx.array, bits: int) -> mx.array:
    """q · scale + bias of affine packed numbers, which are computed already: (…, O, W), two of (…, O, G) -> (…, O, I).

    Scales and biases are in float32, `bits` 2, 4 or 8.
    """
    codes, factors, offsets = (memory(mx.contiguous(array)) for array in (words, scales, biases))
    codes = codes.view(np.uint8).reshape(-1)
    factors, offsets = factors.reshape(-1, 1), offsets.reshape(-1, 1)
    floats = mx.zeros((*words.shape[:-1], words.shape[-1] * 32 // bits))
    mx.eval(floats)
    groups = memory(floats).reshape(factors.size, -1)
    step = max(DEQUANTIZED_PIECE // groups.shape[1], 1)

    def write(first: int) -> None:
        some = slice(first, first + step)
        written = groups[some]
        items: np.ndarray = written.reshape(-1).view(ITEMS[bits])
        start = first * groups.shape[1] * bits // 8
        np.take(_table(bits), codes[start : start + items.size], out=items, mode="clip")
        written *= factors[some]
        written += offsets[some]

    with ThreadPoolExecutor(threads()) as pool:
        list(pool.map(write, range(0, factors.size, step)))
    return floats


@cache
def _table(bits: int) -> Any:  # (256,)
    """The floats of each byte's numbers, the lowest bits first, as one item."""
    numbers = np.arange(256)
    parts = [numbers >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).astype(np.float32).view(ITEMS[bits]).reshape(-1)
