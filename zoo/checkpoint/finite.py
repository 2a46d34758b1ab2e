"""Detection of NaN and infinity in weights.

Weights that are evaluated anyway are checked while they are in memory, in one pass at memory speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantized_matrix import QuantizedMatrix

BITS = {mx.float16: 0x7C00, mx.bfloat16: 0x7F80}  # infinity; larger ones are NaN
SIGN = 0x8000
READ = 2**26  # bytes begun at once


def evaluate(tensors: Mapping[str, Any], report: Callable[[int, int], None] | None = None) -> str | None:
    """Evaluate tensors, arrays and `QuantizedMatrix`, by name; the name of one that holds NaN or infinity, if there is one.

    They are begun some at a time, so that Ctrl-C takes effect; `report` is called with the bytes begun and those in all.
    MLX bounds what is under way, and with it the memory of what is read only to be cast.
    """
    total, seen, done = sum(tensor.nbytes for tensor in tensors.values()), 0, 0
    signs: dict[str, list[mx.array]] = {}
    group: list[Any] = []
    begun: list[Any] = []
    for name, tensor in tensors.items():
        signs[name] = list(_signs(tensor))
        group += [tensor.parts() if isinstance(tensor, QuantizedMatrix) else tensor, signs[name]]
        seen += tensor.nbytes
        if seen - done >= READ:
            mx.async_eval(group)
            begun, group, done = begun + group, [], seen
            if report is not None:
                report(done, total)
    mx.eval(begun, group)
    suspects = (name for name in tensors if any(sign.item() for sign in signs[name]))
    return next((name for name in suspects if not finite(tensors[name])), None)


def finite(tensor: object) -> bool:
    """Whether all of a tensor's numbers are finite, checked one by one."""
    if isinstance(tensor, QuantizedMatrix):
        floats = [part for part in (tensor.scales, tensor.biases, tensor.global_scale) if part is not None]
        return all(map(finite, floats)) and not any(sign.item() for sign in _codes(tensor))
    return not _floats(tensor) or bool(mx.isfinite(tensor).all().item())


def _floats(array: mx.array) -> bool:
    return array.size > 0 and mx.issubdtype(array.dtype, mx.floating)


def _signs(tensor: mx.array | QuantizedMatrix) -> Iterator[mx.array]:
    """Cheap tests for NaN and infinity, without false negatives: one is true where the tensor may hold any."""
    if isinstance(tensor, QuantizedMatrix):
        yield from _codes(tensor)
        for part in (tensor.scales, tensor.biases, tensor.global_scale):
            yield from _signs(part) if part is not None else ()
    elif _floats(tensor) and tensor.dtype in BITS:
        # By their bits: on the CPU whole numbers of 16 bits are compared ten times faster than floats.
        yield tensor.view(mx.int16).max() >= BITS[tensor.dtype]
        yield tensor.view(mx.uint16).max() >= BITS[tensor.dtype] + SIGN
    elif _floats(tensor):
        # The sum of each row, which very large numbers may overflow, as a product: the fastest sum there is on a CPU.
        rows = tensor if tensor.ndim else tensor[None]
        yield mx.logical_not(mx.isfinite(rows @ mx.ones(rows.shape[-1], tensor.dtype)).all())


def _codes(tensor: QuantizedMatrix) -> Iterator[mx.array]:
    """Tests for NaN among scales and numbers of 8 bits: all bits but the sign are set, in E8M0 the sign as well."""
    if tensor.quantization.mode in ("mxfp4", "mxfp8"):
        yield tensor.scales.max() == 0xFF
    elif tensor.quantization.mode == "nvfp4":
        yield ((tensor.scales & 0x7F) == 0x7F).any()
    if tensor.quantization.mode == "mxfp8":
        yield ((tensor.weight.view(mx.uint8) & 0x7F) == 0x7F).any()
