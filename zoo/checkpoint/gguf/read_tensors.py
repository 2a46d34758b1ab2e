"""Reading of GGUF tensors: a range of the file at a time, unpacked in its place in the result.

Pieces are unpacked in parallel, and memory holds no more than these and the result.

Axes: O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from zoo import runtime
from zoo.checkpoint.gguf.header import TensorInfo
from zoo.checkpoint.gguf.quantized_blocks import AFFINE, DENSE, GROUP, mxfp4
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.errors import CheckpointError

CHUNK = 2**18  # numbers that a thread takes apart at once: what it makes of them stays in a core's cache

QUANTIZATIONS = {kind: QuantizationSpec(bits, GROUP) for kind, (bits, _, _) in AFFINE.items()}
QUANTIZATIONS["MXFP4"] = QuantizationSpec(4, GROUP, "mxfp4")
# What numpy calls the kinds that are plain numbers; it has no bfloat16.
PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def stays_packed(entry: TensorInfo) -> bool:
    """Whether one of MLX's quantizations holds the tensor as it is."""
    return entry.kind in QUANTIZATIONS and len(entry.shape) > 1


# Gives each piece of a tensor, as its first row and its bytes (rows, size), to a function that puts it in its place.
Reader = Callable[[TensorInfo, Callable[[int, np.ndarray], None]], None]


@contextmanager
def reader() -> Iterator[Reader]:
    """A reader of tensors that takes their pieces apart side by side."""
    with ThreadPoolExecutor(runtime.threads()) as pool:
        yield lambda entry, store: _read_pieces(entry, store, pool)


def _read_pieces(entry: TensorInfo, store: Callable[[int, np.ndarray], None], pool: Executor) -> None:
    rows = int(np.prod(entry.shape[:-1], dtype=np.int64))
    size, step = entry.size // rows, max(1, CHUNK // entry.shape[-1])
    try:
        file = os.open(entry.path, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"{entry.path}: {error.strerror}") from error

    def read_piece(first: int) -> None:
        count = min(step, rows - first)
        try:
            data = os.pread(file, count * size, entry.offset + first * size)
        except OSError as error:
            raise CheckpointError(f"{entry.path}: {error.strerror}") from error
        if len(data) != count * size:
            raise CheckpointError(f"{entry.path}: ends within tensor {entry.name}")
        with np.errstate(all="ignore"):  # a damaged scale is not a number
            store(first, np.frombuffer(data, np.uint8).reshape(count, size))

    try:
        list(pool.map(read_piece, range(0, rows, step)) if rows > step else map(read_piece, (0,)))
    finally:
        os.close(file)


def read_tensor(entry: TensorInfo, dtype: mx.Dtype, take_apart: Reader | None = None) -> Any:
    """The tensor: a `QuantizedMatrix` whose scales are of `dtype`, or an array of that."""
    if take_apart is None:
        with reader() as take_apart:
            return read_tensor(entry, dtype, take_apart)
    if not stays_packed(entry):
        return _read_numbers(entry, dtype, take_apart)
    quantization = QUANTIZATIONS[entry.kind]
    *outer, inputs = entry.shape
    weight, words = _room((*outer, inputs * quantization.bits // 32), mx.uint32)
    if quantization.mode != "affine":
        scales, scale = _room((*outer, inputs // GROUP), mx.uint8)

        def store_floats(first: int, data: np.ndarray) -> None:
            rows = slice(first, first + len(data))
            for part, found in zip((words, scale), mxfp4(data.reshape(-1, 17)), strict=True):
                part[rows] = found.reshape(len(data), -1)

        take_apart(entry, store_floats)
        return QuantizedMatrix(entry.name, weight, scales, None, quantization)
    (scales, scale), (biases, bias) = (_room((*outer, inputs // GROUP), dtype) for _ in range(2))
    _, block, apart = AFFINE[entry.kind]

    def store(first: int, data: np.ndarray) -> None:
        rows = slice(first, first + len(data))
        blocks = data.reshape(len(data) * (inputs // block), -1)
        for part, found in zip((words, scale, bias), apart(blocks), strict=True):
            _put(part, rows, found.reshape(len(data), -1))

    take_apart(entry, store)
    return QuantizedMatrix(entry.name, weight, _of(scales, dtype), _of(biases, dtype), quantization)


def _read_numbers(entry: TensorInfo, dtype: mx.Dtype, take_apart: Reader) -> mx.array:
    array, numbers = _room(entry.shape, dtype)
    from gguf import GGMLQuantizationType, dequantize

    def store(first: int, data: np.ndarray) -> None:
        rows = slice(first, first + len(data))
        if entry.kind == "BF16":
            found = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif entry.kind in PLAIN:
            found = data.view(PLAIN[entry.kind])
        elif entry.kind in DENSE:
            block, apart = DENSE[entry.kind]
            found = apart(data.reshape(len(data) * (entry.shape[-1] // block), -1)).reshape(len(data), -1)
        else:
            found = dequantize(data, GGMLQuantizationType[entry.kind])
        _put(numbers, rows, found)

    take_apart(entry, store)
    return _of(array, dtype)


def _room(shape: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, np.ndarray]:
    """An array to fill, and numpy's view of its rows, (O, …), through which that is done.

    numpy has no bfloat16: an array of that is filled as the upper halves of float32 (see `_of`).
    """
    array = mx.zeros(shape, mx.uint16 if dtype == mx.bfloat16 else dtype, stream=mx.cpu)
    mx.eval(array)
    return array, np.array(array, copy=False).reshape(-1, shape[-1])


def _put(part: np.ndarray, rows: slice, found: np.ndarray) -> None:
    """Put rows in their place; into one of bfloat16 rounded to the nearest, and to even between two."""
    if part.dtype == np.uint16:
        bits = np.ascontiguousarray(found, np.float32).view(np.uint32)
        rounded = bits + (0x7FFF + (bits >> 16 & 1))
        part[rows] = np.where(np.isnan(found), 0x7FC0, rounded >> 16)
    else:
        part[rows] = found


def _of(array: mx.array, dtype: mx.Dtype) -> mx.array:
    return array.view(mx.bfloat16) if dtype == mx.bfloat16 else array
