"""The tensors of a GGUF file, packed as MLX packs where that is exact, else as the numbers that they stand for.

A block holds 32 numbers of a row (256 in the kinds that end in K), the scales among them. Layouts:
https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h

A tensor is read a range of the file at a time, unpacked in its place in the result. Pieces are unpacked in parallel, and
memory holds no more than these and the result.

Axes: N blocks, 8 groups of 32 numbers in a block of 256, O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import mlx.core as mx
import numpy as np

from zoo import runtime
from zoo.checkpoint.gguf.header import TensorInfo
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.errors import CheckpointError, warn

GROUP = 32  # numbers that share a scale

# The numbers q as MLX packs them (N, W) uint32, scale and bias (N, …) float32, for q · scale + bias.
Unpacked = tuple[np.ndarray, np.ndarray, np.ndarray]


def half(data: np.ndarray) -> np.ndarray:  # (N, 2) -> (N,)
    """The float16 in two bytes, as float32."""
    return np.ascontiguousarray(data).view(np.float16)[:, 0].astype(np.float32)


def nibbles(data: np.ndarray, run: int = 16) -> np.ndarray:  # (N, bytes) -> (N, W)
    """Words of numbers of four bits: the low halves of `run` bytes, then the high ones, then the next bytes."""
    pairs = np.ascontiguousarray(data).view(np.uint16)
    found = np.empty((len(data), data.shape[1] // run, 2, run // 16), np.uint64)
    for half_index, shift in enumerate((0, 4)):
        two = pairs >> np.uint16(shift)
        two &= np.uint16(0x0F0F)  # a number in each byte
        two |= two >> np.uint16(4)
        # Eight bytes at once, since numpy is slow with short rows.
        found[:, :, half_index] = two.astype(np.uint8).view(np.uint64).reshape(found[:, :, half_index].shape)
    return found.reshape(len(data), -1).view(np.uint32)


def block_of_32(data: np.ndarray, bits: int, least: bool = False) -> Unpacked:
    """Unpacks a scale d, a minimum m if `least`, the fifth bits of all numbers if they have any, and their other bits.

    It means (q − 2^(bits − 1)) · d, or q · d + m. Numbers of 8 bits are signed, made unsigned by adding 128.
    """
    scale = half(data[:, :2])
    bias = half(data[:, 2:4]) if least else -(2 ** (bits - 1)) * scale
    data = data[:, 4 if least else 2 :]
    if bits == 8:
        return (data ^ 128).view(np.uint32), scale, bias
    if bits == 4:
        return nibbles(data), scale, bias
    fifth = np.unpackbits(data[:, :4], axis=-1, bitorder="little") << 4
    four = np.concatenate(
        [data[:, 4:] & 15, data[:, 4:] >> 4], -1
    )  # the low halves of all bytes, then the high ones
    return fives(four | fifth), scale, bias


def q4_k(data: np.ndarray) -> Unpacked:
    """Scales (see `scales_k`), then four bits: q · scale − least."""
    return nibbles(data[:, 16:], GROUP), *scales_k(data)


def q5_k(data: np.ndarray) -> Unpacked:
    """Scales, 32 bytes whose bit g is the fifth of a number in group g, then the other four bits."""
    numbers = np.empty((len(data), 4, 2, GROUP), np.uint8)
    halved(data[:, 48:].reshape(-1, 4, GROUP), numbers.swapaxes(1, 2))
    for group in range(8):
        numbers[:, group // 2, group % 2] |= shifted(data[:, 16:48], 4 - group) & 16
    return fives(numbers.reshape(len(data), -1)), *scales_k(data)


def q6_k(data: np.ndarray) -> np.ndarray:  # (N, 210) -> (N, 256)
    """The numbers themselves, float32: four bits, two more, scales of 16 numbers, and a scale of those, (q − 32) · s · d."""
    numbers = np.empty((len(data), 2, 4, GROUP), np.uint8)
    halved(
        data[:, :128].reshape(-1, 2, 2, GROUP), numbers.reshape(-1, 2, 2, 2, GROUP).transpose(0, 2, 1, 3, 4)
    )
    upper = data[:, 128:192].reshape(-1, 2, GROUP)
    for index in range(4):
        numbers[:, :, index] |= shifted(upper, 4 - 2 * index) & 48
    numbers -= 32
    scale = data[:, 192:208].view(np.int8).astype(np.float32) * half(data[:, 208:])[:, None]
    found = numbers.view(np.int8).reshape(-1, 16, 16).astype(np.float32)
    found *= scale[:, :, None]
    return found.reshape(len(data), -1)


def halved(data: np.ndarray, numbers: np.ndarray) -> None:  # (N, …) into (N, 2, …)
    """Write the low halves of bytes to `numbers[:, 0]`, the high halves to `numbers[:, 1]`."""
    np.bitwise_and(data, 15, out=numbers[:, 0])
    np.right_shift(data, 4, out=numbers[:, 1])


def shifted(data: np.ndarray, by: int) -> np.ndarray:
    """Bytes shifted to the left, or to the right by a negative number."""
    return data << by if by >= 0 else data >> -by


def scales_k(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 16 and more) -> two of (N, 8)
    """Scales and biases of the groups: numbers of six bits, times a float16 each."""
    from gguf.quants import Q4_K

    scale, least = Q4_K.get_scale_min(np.ascontiguousarray(data[:, 4:16]))
    return half(data[:, :2])[:, None] * scale, -half(data[:, 2:4])[:, None] * least


def mxfp4(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # (N, 17) -> (N, 4), (N,)
    """Words of numbers of four bits that are floats, and the byte that is their scale."""
    return nibbles(data[:, 1:]), data[:, 0]


def fives(numbers: np.ndarray) -> np.ndarray:  # (N, 32 or more) -> (N, W)
    """Words of consecutive numbers of five bits, lowest bit first, as MLX packs them."""
    eights = np.ascontiguousarray(numbers).view(np.uint64)
    size = 5  # of what stands at the low end of each lane: a number, two, four
    for lane in (8, 16, 32):
        low = np.uint64(sum((1 << size) - 1 << start for start in range(0, 64, 2 * lane)))
        eights = eights & low | (eights & low << np.uint64(lane)) >> np.uint64(lane - size)
        size *= 2
    data = eights.reshape(-1, 1).view(np.uint8)[:, :5]
    return np.ascontiguousarray(data).reshape(len(numbers), -1).view(np.uint32)


# The kinds that affine quantizations hold as they are, their bits the first number of the name, and what unpacks them.
AFFINE: dict[str, Callable[[np.ndarray], Unpacked]] = {
    "Q4_0": partial(block_of_32, bits=4),
    "Q4_1": partial(block_of_32, bits=4, least=True),
    "Q5_0": partial(block_of_32, bits=5),
    "Q5_1": partial(block_of_32, bits=5, least=True),
    "Q8_0": partial(block_of_32, bits=8),
    "Q4_K": q4_k,
    "Q5_K": q5_k,
}
CHUNK = 2**18  # numbers that a thread unpacks at once, few enough for a core's cache

QUANTIZATIONS = {kind: QuantizationSpec(int(kind[1]), GROUP) for kind in AFFINE}
QUANTIZATIONS["MXFP4"] = QuantizationSpec(4, GROUP, "mxfp4")
# What numpy calls the kinds that are plain numbers; it has no bfloat16.
PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def stays_packed(entry: TensorInfo) -> bool:
    """Whether one of MLX's quantizations holds the tensor as it is."""
    return entry.kind in QUANTIZATIONS and len(entry.shape) > 1


@contextmanager
def reading_pool(pool: Executor | None = None) -> Iterator[Executor]:
    """The threads that read and unpack pieces of tensors in parallel: those of `pool`, or new ones."""
    if pool is not None:
        yield pool
        return
    with ThreadPoolExecutor(runtime.threads()) as pool:
        yield pool


def read_tensor(entry: TensorInfo, dtype: mx.Dtype, pool: Executor | None = None) -> Any:
    """Read a tensor as a `QuantizedMatrix` with scales of `dtype`, or as an array of `dtype`.

    `pool` unpacks its pieces. CheckpointError for a file that has become shorter, or cannot be read.
    """
    if entry.scale is not None:
        matrix = read_tensor(replace(entry, scale=None), mx.float32, pool)
        factors = read_tensor(entry.scale, mx.float32).reshape(-1, *[1] * (len(entry.shape) - 1))
        return (matrix * factors).astype(dtype)
    quantization = QUANTIZATIONS[entry.kind] if stays_packed(entry) else None
    rooms = [_room(shape, kind) for shape, kind in _array_shapes(entry, quantization, dtype)]
    rows = math.prod(entry.shape[:-1])
    size, step = entry.size // rows, max(1, CHUNK // entry.shape[-1])  # bytes of a row, rows of a piece

    def read_piece(file: BinaryIO, first: int) -> None:
        count = min(step, rows - first)
        data = os.pread(file.fileno(), count * size, entry.offset + first * size)
        if len(data) != count * size:
            raise CheckpointError(f"{entry.path}: ends within tensor {entry.name}")
        with np.errstate(all="ignore"):  # a damaged scale is not a number
            unpacked = _unpacked(entry, np.frombuffer(data, np.uint8).reshape(count, size))
            for (_, room), numbers in zip(rooms, unpacked, strict=True):
                _put(room, slice(first, first + count), numbers.reshape(count, -1))

    starts = range(0, rows, step)
    try:
        with entry.path.open("rb") as file, reading_pool(pool) as pool:
            list((pool.map if len(starts) > 1 else map)(partial(read_piece, file), starts))
    except OSError as error:
        raise CheckpointError(f"{entry.path}: {error.strerror}") from error
    arrays = [array.view(mx.bfloat16) if array.dtype == mx.uint16 else array for array, _ in rooms]
    return _assembled(entry, quantization, arrays)


def _array_shapes(
    entry: TensorInfo, quantization: QuantizationSpec | None, dtype: mx.Dtype
) -> list[tuple[tuple[int, ...], mx.Dtype]]:
    """The shape and type of each array that the tensor becomes: its numbers, or weight, scales and biases."""
    if quantization is None:
        return [(entry.shape, dtype)]
    *outer, inputs = entry.shape
    weight = (*outer, inputs * quantization.bits // 32)  # (…, O, W)
    groups = (*outer, inputs // GROUP)  # (…, O, G)
    affine = quantization.mode == "affine"
    return [(weight, mx.uint32), *([(groups, dtype)] * 2 if affine else [(groups, mx.uint8)])]


def _assembled(entry: TensorInfo, quantization: QuantizationSpec | None, arrays: list[mx.array]) -> Any:
    """The tensor of these arrays."""
    if quantization is None:
        return arrays[0]
    weight, scales, *biases = arrays
    return QuantizedMatrix(entry.name, weight, scales, biases[0] if biases else None, quantization)


def _unpacked(entry: TensorInfo, data: np.ndarray) -> tuple[np.ndarray, ...]:  # (rows, size)
    """Rows of a tensor, unpacked, for each of the arrays that it becomes."""
    if entry.kind == "BF16":
        return ((data.view(np.uint16).astype(np.uint32) << 16).view(np.float32),)
    if entry.kind in PLAIN:
        return (data.view(PLAIN[entry.kind]),)
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType[entry.kind]
    blocks = data.reshape(-1, GGML_QUANT_SIZES[kind][1])
    if stays_packed(entry):
        return (mxfp4 if entry.kind == "MXFP4" else AFFINE[entry.kind])(blocks)
    # No quantization holds Q6_K, which the gguf package unpacks several times more slowly.
    return (q6_k(blocks) if entry.kind == "Q6_K" else dequantize(data, kind),)


def _room(shape: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, np.ndarray]:
    """An array to fill, and numpy's view of its rows, (O, …), through which that is done.

    numpy has no bfloat16: an array of that is filled as the upper halves of float32 (see `_put`).
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


REQUANTIZATIONS = {bits: QuantizationSpec(bits, GROUP) for bits in (4, 6, 8)}
LAYER = re.compile(r"(?:\w+\.)?blk\.\d+\.")  # begins the names of a layer's tensors
# The kinds whose numbers, or scales and biases, a smaller float than float32 holds as they are.
SMALLER = {"BF16": mx.bfloat16}
SMALLER |= dict.fromkeys(("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"), mx.float16)
SAMPLE = 1024  # numbers of a tensor


@dataclass
class Requantized:
    """The error of requantizing to `bits`: each tensor's kind, and the sums of its squared errors and squared numbers."""

    bits: int
    tensors: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def add(self, entry: TensorInfo, matrix: mx.array, packed: QuantizedMatrix) -> None:
        """Add the error of one tensor."""
        error = total = 0.0
        for piece, other in zip(_parts(matrix), _parts(packed), strict=True):
            error += mx.square(piece - other.numbers(mx.float32)).sum().item()
            total += mx.square(piece).sum().item()
        self.tensors[entry.name] = entry.kind, error, total

    def warn(self) -> None:
        """Warn of the error of all tensors in one line."""
        if self.tensors:
            kinds, errors, totals = zip(*self.tensors.values(), strict=True)
            lost = (sum(errors) / sum(totals)) ** 0.5 if sum(totals) else 0.0
            what = _listed(Counter(kinds))
            warn(f"packed anew in {self.bits} bits: {what}; relative error (RMS) {lost:.2g}")


def _parts(matrix: Any) -> Iterator[Any]:
    """The matrix in pieces of a few million numbers, by its outermost axis."""
    step = max(1, 2**22 // max(1, int(np.prod(matrix.shape[1:], dtype=np.int64))))
    for first in range(0, matrix.shape[0], step):
        yield matrix[first : first + step]


def check_kinds(entries: Iterable[TensorInfo]) -> None:
    """CheckpointError for a kind of tensor that nothing here can dequantize."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    for entry in {entry.kind: entry for entry in entries}.values():
        if entry.kind in QUANTIZATIONS or entry.kind in PLAIN:
            continue
        kind = GGMLQuantizationType[entry.kind]
        try:
            dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except NotImplementedError:
            what = f"tensor {entry.name} is of type {entry.kind}"
            raise CheckpointError(f"{entry.path}: {what}, which cannot be unpacked") from None


def read_requantized(
    entry: TensorInfo, dtype: mx.Dtype, bits: int | None, losses: Requantized, pool: Executor
) -> Any:
    """As `read_tensor`; what no quantization holds exactly is quantized to `bits`, and its error added to `losses`."""
    quantization = quantization_of(entry, bits)
    if quantization is None or stays_packed(entry):
        return read_tensor(entry, dtype, pool)
    matrix = read_tensor(entry, mx.float32, pool)
    packed = quantize_matrix(entry.name, matrix, quantization).astype(dtype)
    mx.eval(*packed.parts().values())
    losses.add(entry, matrix, packed)
    return packed


def layer_groups(names: Iterable[str]) -> list[list[str]]:
    """The names of the tensors that belong together: those of each layer, and the others first."""
    groups: dict[str, list[str]] = {"": []}
    for name in names:
        found = LAYER.match(name)
        groups.setdefault(found[0] if found else "", []).append(name)
    return [names for names in groups.values() if names]


def own_dtype(entries: Iterable[TensorInfo]) -> mx.Dtype:
    """On a CPU the smallest float that holds the numbers, scales and biases of all matrices as they are.

    On a GPU, where a product of two float dtypes would cast one of them each time: float32 for a file of such matrices,
    float16 for one whose float16 numbers need it, else `runtime.dequantized_dtype`. Nearly all families since 2023 are
    published in bfloat16, and the activations of some exceed float16's range.
    """
    matrices = [entry for entry in entries if len(entry.shape) > 1]
    kinds = {entry.kind for entry in matrices}
    smaller = kinds - {"F32", "F64"}
    if smaller and runtime.dequantized_dtype() != mx.float32:
        halves = (entry for entry in matrices if entry.kind == "F16")
        needs_half = smaller == {"F16"} and not all(map(fits_bfloat16, halves))
        return mx.float16 if needs_half else runtime.dequantized_dtype()
    wanted = {SMALLER.get(kind, mx.float32) for kind in kinds}
    return wanted.pop() if len(wanted) == 1 else mx.float32


def fits_bfloat16(entry: TensorInfo) -> bool:
    """Whether bfloat16 holds the first numbers of a float16 tensor as they are: it was made of bfloat16 then."""
    with entry.path.open("rb") as file:
        file.seek(entry.offset)
        numbers = mx.array(np.frombuffer(file.read(min(entry.size, 2 * SAMPLE)), np.float16))
    return bool((numbers.astype(mx.bfloat16) == numbers).all().item())


def quantization_of(entry: TensorInfo, repack: int | None = None) -> QuantizationSpec | None:
    """The tensor's quantization: the file's, or that asked for; None for a tensor of plain floats."""
    if stays_packed(entry):
        return QUANTIZATIONS[entry.kind]
    fits = len(entry.shape) > 1 and entry.kind not in PLAIN and not entry.shape[-1] % GROUP
    return REQUANTIZATIONS[repack] if repack is not None and fits else None


def warn_of_dequantized(entries: Iterable[TensorInfo], dtype: mx.Dtype, repack: int | None = None) -> None:
    """Warn of the kinds that have no packed form."""
    kinds = Counter(e.kind for e in entries if e.kind not in PLAIN and quantization_of(e, repack) is None)
    if kinds:
        name = str(dtype).removeprefix("mlx.core.")
        warn(f"tensors that no quantization of MLX holds exactly, dequantized to {name}: {_listed(kinds)}")


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))


def unread(entry: TensorInfo, dtype: mx.Dtype, repack: int | None = None) -> Any:
    """A placeholder of the tensor: zeros that take no memory until they are evaluated."""
    quantization = quantization_of(entry, repack)
    arrays = [mx.zeros(shape, kind) for shape, kind in _array_shapes(entry, quantization, dtype)]
    return _assembled(entry, quantization, arrays)
