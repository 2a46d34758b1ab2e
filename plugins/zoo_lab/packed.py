"""Checkpoints in fewer bits, made in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.checkpoint.quantize import packing_of, quantize
from zoo.loading import load

WIDTH = 2  # bytes of a number that is not packed, as the checkpoint stores it


@lru_cache(maxsize=1)
def packed(name: str, bits: int, group: int) -> Any:
    """An embedded checkpoint whose matrices are packed in so many bits, by groups of `group` weights."""
    loaded = load(name, dtype="float32")
    quantize(loaded.model, packing_of(str(bits), group))
    mx.eval(loaded.model.parameters())
    return loaded


def weight_bytes(loaded: Any) -> int:
    """The bytes of a model's weights: packed ones as they are, others in 16 bits."""
    arrays = {id(array): array for _, array in tree_flatten(loaded.model.parameters())}.values()
    return sum(array.nbytes if array.dtype == mx.uint32 else WIDTH * array.size for array in arrays)
