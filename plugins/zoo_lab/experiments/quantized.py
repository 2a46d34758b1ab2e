"""Checkpoints in fewer bits, made in memory."""

from __future__ import annotations

from functools import lru_cache

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo.checkpoint.quantize import choose, parse_quantization
from zoo.loading import Loaded, load

WIDTH = 2  # bytes of a number that is not packed, as the checkpoint stores it


@lru_cache(maxsize=1)
def packed(name: str, bits: int, group: int) -> tuple[Loaded, int]:
    """An embedded checkpoint rounded to `bits` by groups of `group` weights, and the bytes of its packed weights.

    Which matrices are packed, and how, is what `zoo convert` would choose. Each is unpacked again, so that its products
    are those of a dense one: the same up to the order of sums, and on a CPU much faster.
    """
    loaded = load(name, dtype="float32")
    asked, size = parse_quantization(str(bits), group), weight_bytes(loaded)
    for path, module in loaded.model.named_modules():
        packing = choose(path, module, asked)
        if packing is None:
            continue
        how = {"group_size": packing.group_size, "bits": packing.bits, "mode": packing.mode}
        parts = mx.quantize(module.weight, **how)
        size += sum(part.size * (4 if part.dtype == mx.uint32 else WIDTH) for part in parts)
        size -= WIDTH * module.weight.size
        module.weight = mx.dequantize(*parts, **how)
    mx.eval(loaded.model.parameters())
    return loaded, size


def weight_bytes(loaded: Loaded) -> int:
    """The bytes of a model's weights in 16 bits."""
    arrays = {id(array): array for _, array in tree_flatten(loaded.model.parameters())}.values()
    return sum(WIDTH * array.size for array in arrays)
