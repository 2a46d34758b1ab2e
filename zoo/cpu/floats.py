"""The floats that packed matrices stand for. The CPU backend multiplies packed matrices several times slower than floats.

Axes: O outputs, I inputs, W 32-bit words, G groups.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from zoo.cpu.eager import evaluates
from zoo.cpu.streams import in_parts
from zoo.machine import total_memory

DEQUANTIZED_ROWS = 16  # with at least so many rows a matrix is dequantized before the product
MANY_WORDS = 2**16  # from which on tables are faster
TABLE_BITS = (2, 4, 8)


def keeps_floats(nbytes: int) -> bool:
    """Whether to keep a float copy, of `nbytes`, of packed matrices. The copy may take half of the memory."""
    room = total_memory()
    return room is not None and nbytes <= room / 2


def multiplies_floats(rows: int) -> bool:
    """Whether this many rows multiply faster with a dequantized matrix than with the packed one."""
    return rows >= DEQUANTIZED_ROWS


def dequantize(weight: mx.array, scales: mx.array, biases: mx.array | None, how: Any) -> mx.array:
    """The floats that packed numbers (…, O, W) stand for, unevaluated or, inside `eager()`, by tables of bytes: (…, O, I)."""
    affine = how["mode"] == "affine" and how["bits"] in TABLE_BITS and biases is not None
    if (
        affine
        and weight.size >= MANY_WORDS
        and scales.dtype == mx.float32
        and evaluates(weight, scales, biases)
    ):
        from zoo.cpu.tables import dequantize_by_table

        return dequantize_by_table(weight, scales, biases, how["bits"])
    unpack = in_parts(partial(mx.dequantize, **how), 0, weight, scales, biases)
    return unpack().astype(mx.float32)
