"""The tensors of a GGUF file: its blocks of packed numbers to MLX's words, scales and biases, or to the numbers.

A block holds 32 numbers (256 in the kinds that end in K) of one row, their scales among them. Where each group of 32 has
one scale, and the numbers are q · scale + bias, MLX's affine packing holds the same, and the same numbers come out.
Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h

Axes: N blocks, O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.checkpoint.gguf_header import Entry
from zoo.checkpoint.packed import Packed, Packing
from zoo.errors import CheckpointError

GROUP = 32  # numbers that share a scale
CHUNK = 2**22  # numbers that are unpacked at once

Unpacked = tuple[np.ndarray, np.ndarray, np.ndarray]  # q (N, …, 32) uint8, scale and bias (N, …) float32


def half(pair: np.ndarray) -> np.ndarray:  # (N, 2) -> (N,)
    """The float16 in two bytes, as float32."""
    return np.ascontiguousarray(pair).view(np.float16)[:, 0].astype(np.float32)


def nibbles(data: np.ndarray) -> np.ndarray:  # (…, 16) -> (…, 32)
    """Numbers of four bits: the low halves of all bytes, then the high ones."""
    return np.concatenate([data & 15, data >> 4], -1)


def fifth(data: np.ndarray) -> np.ndarray:  # (N, 4) -> (N, 32)
    """The fifth bits of 32 numbers, in their place."""
    return np.unpackbits(data, axis=-1, bitorder="little") << 4


def q4_0(data: np.ndarray) -> Unpacked:
    scale = half(data[:, :2])
    return nibbles(data[:, 2:]), scale, -8 * scale


def q4_1(data: np.ndarray) -> Unpacked:
    return nibbles(data[:, 4:]), half(data[:, :2]), half(data[:, 2:4])


def q5_0(data: np.ndarray) -> Unpacked:
    scale = half(data[:, :2])
    return nibbles(data[:, 6:]) | fifth(data[:, 2:6]), scale, -16 * scale


def q5_1(data: np.ndarray) -> Unpacked:
    return nibbles(data[:, 8:]) | fifth(data[:, 4:8]), half(data[:, :2]), half(data[:, 2:4])


def q8_0(data: np.ndarray) -> Unpacked:
    scale = half(data[:, :2])
    return data[:, 2:] ^ 128, scale, -128 * scale  # signed bytes, shifted by 128


def scales_k(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 16) -> two of (N, 8)
    """Scales and biases of the eight groups of a block: numbers of six bits times a float16 each."""
    from gguf.quants import Q4_K

    scale, least = Q4_K.get_scale_min(np.ascontiguousarray(data[:, 4:16]))
    return half(data[:, :2])[:, None] * scale, -half(data[:, 2:4])[:, None] * least


def nibbles_k(data: np.ndarray) -> np.ndarray:  # (N, 128) -> (N, 8, 32)
    """Numbers of four bits: 32 bytes hold a group in their low halves and the next one in their high halves."""
    pairs = data.reshape(-1, 4, 1, GROUP) >> np.array([0, 4], np.uint8).reshape(2, 1)
    return pairs.reshape(-1, 8, GROUP) & 15


def q4_k(data: np.ndarray) -> Unpacked:
    return nibbles_k(data[:, 16:]), *scales_k(data)


def q5_k(data: np.ndarray) -> Unpacked:
    fifths = data[:, 16:48, None].swapaxes(1, 2) >> np.arange(8, dtype=np.uint8).reshape(8, 1) & 1
    return nibbles_k(data[:, 48:]) | fifths << 4, *scales_k(data)


# How many bits a number has, and how its blocks are taken apart.
AFFINE: dict[str, tuple[int, Callable[[np.ndarray], Unpacked]]] = {
    "Q4_0": (4, q4_0),
    "Q4_1": (4, q4_1),
    "Q5_0": (5, q5_0),
    "Q5_1": (5, q5_1),
    "Q8_0": (8, q8_0),
    "Q4_K": (4, q4_k),
    "Q5_K": (5, q5_k),
}
PACKINGS = {kind: Packing(bits, GROUP) for kind, (bits, _) in AFFINE.items()} | {
    "MXFP4": Packing(4, GROUP, "mxfp4")
}
# What numpy calls the kinds that hold plain numbers; it has no bfloat16.
PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# The kinds whose numbers, scales and biases a float16 or a bfloat16 holds as they are.
EXACT = {"BF16": mx.bfloat16} | dict.fromkeys(("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"), mx.float16)


def words(numbers: np.ndarray, bits: int) -> np.ndarray:  # (O, I) -> (O, W)
    """Numbers of `bits` bits one behind the other, the lowest bit first, as MLX packs them."""
    eights = numbers.reshape(-1, 8)
    joined = eights[:, 0].astype(np.uint64)
    for place in range(1, 8):
        joined |= eights[:, place].astype(np.uint64) << np.uint64(place * bits)
    data = joined.view(np.uint8).reshape(-1, 8)[:, :bits]
    return np.ascontiguousarray(data).reshape(numbers.shape[0], -1).view(np.uint32)


def stays_packed(entry: Entry) -> bool:
    """Whether MLX's packings hold the tensor as it is."""
    return entry.kind in PACKINGS and len(entry.shape) > 1


def check_kind(entry: Entry) -> None:
    """CheckpointError when nothing here knows how the tensor's numbers are packed."""
    if entry.kind in PACKINGS or entry.kind in PLAIN:
        return
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType[entry.kind]
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        raise CheckpointError(f"{entry.path}: tensor {entry.name} is of the type {entry.kind}, which cannot be unpacked") from None


def read(entry: Entry, dtype: mx.Dtype) -> Any:
    """The tensor, read and unpacked a piece at a time: a `Packed` whose scales are of `dtype`, or an array of it."""
    *outer, inputs = entry.shape
    rows = entry.size // row_size(entry)
    pieces: dict[str, list[mx.array]] = {}
    step = max(1, CHUNK // inputs)
    for first in range(0, rows, step):
        data = _bytes(entry, first, min(step, rows - first))
        with np.errstate(all="ignore"):
            piece = _packed(entry, data, dtype) if stays_packed(entry) else {"": _numbers(entry, data, dtype)}
        mx.eval(list(piece.values()))
        for part, array in piece.items():
            pieces.setdefault(part, []).append(array)
    whole = {part: _joined(arrays).reshape(*outer, -1) for part, arrays in pieces.items()}
    mx.eval(list(whole.values()))
    if "" in whole:
        return whole[""]
    return Packed(entry.name, whole["weight"], whole["scales"], whole.get("biases"), PACKINGS[entry.kind])


def row_size(entry: Entry) -> int:
    """The bytes of one row."""
    return entry.size * entry.shape[-1] // int(np.prod(entry.shape, dtype=np.int64))


def unread(entry: Entry, dtype: mx.Dtype) -> Any:
    """What `read` will give, with zeros that take no memory until somebody asks for them."""
    if not stays_packed(entry):
        return mx.zeros(entry.shape, dtype)
    *outer, inputs = entry.shape
    packing = PACKINGS[entry.kind]
    weight = mx.zeros((*outer, inputs * packing.bits // 32), mx.uint32)
    affine = packing.mode == "affine"
    scales = mx.zeros((*outer, inputs // GROUP), dtype if affine else mx.uint8)
    return Packed(entry.name, weight, scales, scales if affine else None, packing)


def _bytes(entry: Entry, first: int, rows: int) -> np.ndarray:  # (rows, bytes of a row)
    size = row_size(entry)
    try:
        data = np.fromfile(entry.path, np.uint8, rows * size, offset=entry.offset + first * size)
    except OSError as error:
        raise CheckpointError(f"{entry.path}: {error.strerror}") from error
    if data.size != rows * size:
        raise CheckpointError(f"{entry.path}: ends within tensor {entry.name}")
    return data.reshape(rows, size)


def _packed(entry: Entry, data: np.ndarray, dtype: mx.Dtype) -> dict[str, mx.array]:
    rows = data.shape[0]
    if entry.kind == "MXFP4":  # a byte of scale, then 32 numbers of four bits
        blocks = data.reshape(-1, 17)
        packed = words(nibbles(blocks[:, 1:]).reshape(rows, -1), 4)
        return {"weight": mx.array(packed), "scales": mx.array(blocks[:, 0].reshape(rows, -1))}
    bits, take_apart = AFFINE[entry.kind]
    numbers, scale, bias = take_apart(data.reshape(rows * (entry.shape[-1] // block_of(entry)), -1))
    return {
        "weight": mx.array(words(numbers.reshape(rows, -1), bits)),
        "scales": mx.array(scale.reshape(rows, -1)).astype(dtype),
        "biases": mx.array(bias.reshape(rows, -1)).astype(dtype),
    }


def block_of(entry: Entry) -> int:
    """How many numbers a block of the tensor's kind holds."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    return GGML_QUANT_SIZES[GGMLQuantizationType[entry.kind]][0]


def _numbers(entry: Entry, data: np.ndarray, dtype: mx.Dtype) -> mx.array:
    if entry.kind in PLAIN:
        numbers = data.view(PLAIN[entry.kind])
        if entry.kind == "BF16":
            return mx.array(numbers).view(mx.bfloat16).astype(dtype)
        return mx.array(numbers.astype(np.float32) if entry.kind == "F64" else numbers).astype(dtype)
    from gguf import GGMLQuantizationType, dequantize

    return mx.array(dequantize(data, GGMLQuantizationType[entry.kind])).astype(dtype)


def _joined(arrays: list[mx.array]) -> mx.array:
    return arrays[0] if len(arrays) == 1 else mx.concatenate(arrays)
