"""The tensors of a GGUF file, packed as MLX packs where that is exact, else as the numbers that they stand for.

A file is read by ranges, a piece of a tensor at a time, and the pieces are taken apart side by side, each into its place
in what is kept. So nothing is ever held but that and a few pieces.

Axes: O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from zoo import runtime
from zoo.checkpoint.gguf_blocks import AFFINE, DENSE, GROUP, mxfp4
from zoo.checkpoint.gguf_header import Entry
from zoo.checkpoint.packed import Packed, Packing, pack
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
from zoo.notices import notice

CHUNK = 2**18  # numbers that a thread takes apart at once: what it makes of them stays in a core's cache

PACKINGS = {kind: Packing(bits, GROUP) for kind, (bits, _, _) in AFFINE.items()}
PACKINGS["MXFP4"] = Packing(4, GROUP, "mxfp4")
REPACKINGS = {bits: Packing(bits, GROUP) for bits in (4, 6, 8)}
LAYER = re.compile(r"(?:\w+\.)?blk\.\d+\.")  # begins the names of a layer's tensors
# What numpy calls the kinds that are plain numbers; it has no bfloat16.
PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# The kinds whose numbers, or scales and biases, a smaller float than float32 holds as they are.
SMALLER = {"BF16": mx.bfloat16}
SMALLER |= dict.fromkeys(("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"), mx.float16)
WIDER = ("F32", "F64", "Q4_K", "Q5_K")  # that only float32 holds so


@dataclass
class Repacked:
    """What was packed anew, in `bits`: how many tensors of each kind, and the squares of error and numbers, summed."""

    bits: int
    kinds: Counter[str] = field(default_factory=Counter)
    error: float = 0.0
    total: float = 0.0

    def add(self, kind: str, matrix: mx.array, packed: Packed) -> None:
        """Count one more."""
        self.kinds[kind] += 1
        for row, other in zip(_parts(matrix), _parts(packed), strict=True):
            difference = row - (other.numbers(mx.float32) if isinstance(other, Packed) else other)
            self.error += mx.square(difference).sum().item()
            self.total += mx.square(row).sum().item()

    def tell(self) -> None:
        """Say in one line what was lost."""
        if self.kinds:
            lost = (self.error / self.total) ** 0.5 if self.total else 0.0
            notice(f"packed anew in {self.bits} bits: {_listed(self.kinds)}; relative error (RMS) {lost:.2g}")


def _parts(matrix: Any) -> Iterator[Any]:
    """The matrix in pieces of a few million numbers, by its outermost axis."""
    step = max(1, 2**22 // max(1, int(np.prod(matrix.shape[1:], dtype=np.int64))))
    for first in range(0, matrix.shape[0], step):
        yield matrix[first : first + step]


@dataclass
class GGUFTensors(Tensors):
    """The tensors of a GGUF file. `arrays` have their shapes and no numbers; `read` gives those that have.

    `repack` (4, 6 or 8) packs what no packing holds exactly, in so many bits; `repacked` counts what that lost.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    repack: int | None = None
    repacked: Repacked = field(default_factory=lambda: Repacked(0))

    def held(self, dtype: mx.Dtype | None) -> int:
        """The bytes of what `read` gives."""
        return sum(array.nbytes for array in self.promised(dtype).values())

    def read(self, dtype: mx.Dtype | None, names: Collection[str] | None = None) -> Tensors:
        """The tensors themselves, or those of some `names`, floats cast to `dtype`.

        Without one they are of the smallest that holds all matrices as they are.
        """
        dtype = dtype or own_dtype(self.entries.values(), self.repack)
        chosen = [entry for name, entry in self.entries.items() if names is None or name in names]
        with reader() as take_apart:
            arrays = {entry.name: self._read(entry, dtype, take_apart) for entry in chosen}
        return Tensors(arrays, self.dtypes, self.metadata)

    def _read(self, entry: Entry, dtype: mx.Dtype, take_apart: Reader) -> Any:
        packing = packing_of(entry, self.repack)
        if packing is None or stays_packed(entry):
            return read(entry, dtype, take_apart)
        matrix = read(entry, mx.float32, take_apart)
        packed = pack(entry.name, matrix, packing)
        packed = packed.astype(dtype)
        mx.eval(*packed.parts().values())
        self.repacked.add(entry.kind, matrix, packed)
        return packed

    def promised(self, dtype: mx.Dtype | None) -> dict[str, Any]:
        """What `read` gives, without numbers."""
        dtype = dtype or own_dtype(self.entries.values(), self.repack)
        return {name: unread(entry, dtype, self.repack) for name, entry in self.entries.items()}

    def layers(self) -> list[list[str]]:
        """The names of the tensors that belong together: those of each layer, and the others first."""
        groups: dict[str, list[str]] = {"": []}
        for name in self.entries:
            found = LAYER.match(name)
            groups.setdefault(found[0] if found else "", []).append(name)
        return [names for names in groups.values() if names]

    def tell(self, dtype: mx.Dtype | None) -> None:
        """Say in one line which kinds have no packed form, or what they lost when they got one."""
        dtype = dtype or own_dtype(self.entries.values(), self.repack)
        warn_of_unpacked(self.entries.values(), dtype, self.repack)
        self.repacked.tell()


def tensors_of(entries: Mapping[str, Entry], repack: int | None = None) -> GGUFTensors:
    """The tensors that a header names, unread; CheckpointError for a kind that nothing here can unpack."""
    if repack not in (None, *REPACKINGS):
        raise CheckpointError(f"repack {repack!r} is not one of {', '.join(map(str, REPACKINGS))}")
    for entry in {entry.kind: entry for entry in entries.values()}.values():
        check_kind(entry)
    dtype = own_dtype(entries.values(), repack)
    arrays = {name: unread(entry, dtype, repack) for name, entry in entries.items()}
    kinds = {name: entry.kind for name, entry in entries.items()}
    lost = Repacked(repack or 0)
    return GGUFTensors(arrays, kinds, {"format": "gguf"}, entries=entries, repack=repack, repacked=lost)


def own_dtype(entries: Iterable[Entry], repack: int | None = None) -> mx.Dtype:
    """The smallest float that holds the numbers, scales and biases of all matrices as they are.

    A device may prefer another for matrices that are unpacked, which then is that of all: a product of two kinds of
    floats would cast one of them each time.
    """
    kinds = {entry.kind for entry in entries if len(entry.shape) > 1}
    unpacked = kinds - {*SMALLER, *WIDER}
    if unpacked and repack is None and runtime.unpacked_dtype() != mx.float32:
        return mx.bfloat16 if "BF16" in kinds else runtime.unpacked_dtype()
    wanted = {SMALLER.get(kind, mx.float32) for kind in kinds}
    return wanted.pop() if len(wanted) == 1 else mx.float32


def stays_packed(entry: Entry) -> bool:
    """Whether one of MLX's packings holds the tensor as it is."""
    return entry.kind in PACKINGS and len(entry.shape) > 1


def packing_of(entry: Entry, repack: int | None = None) -> Packing | None:
    """How the tensor is packed: as it is, or anew; None where it is not."""
    if stays_packed(entry):
        return PACKINGS[entry.kind]
    fits = len(entry.shape) > 1 and entry.kind not in PLAIN and not entry.shape[-1] % GROUP
    return REPACKINGS[repack] if repack is not None and fits else None


def check_kind(entry: Entry) -> None:
    """CheckpointError when nothing here knows how the tensor's numbers are packed."""
    if entry.kind in PACKINGS or entry.kind in PLAIN:
        return
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType[entry.kind]
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        raise CheckpointError(
            f"{entry.path}: tensor {entry.name} is of type {entry.kind}, which cannot be unpacked"
        ) from None


def warn_of_unpacked(entries: Iterable[Entry], dtype: mx.Dtype, repack: int | None = None) -> None:
    """Say which kinds have no packed form."""
    kinds = Counter(e.kind for e in entries if e.kind not in PLAIN and packing_of(e, repack) is None)
    if kinds:
        name = str(dtype).removeprefix("mlx.core.")
        notice(f"tensors that no packing of MLX holds exactly, dequantized to {name}: {_listed(kinds)}")


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))


def unread(entry: Entry, dtype: mx.Dtype, repack: int | None = None) -> Any:
    """What `read` will give, with zeros that take no memory while nobody asks for them."""
    packing = packing_of(entry, repack)
    if packing is None:
        return mx.zeros(entry.shape, dtype)
    *outer, inputs = entry.shape
    weight = mx.zeros((*outer, inputs * packing.bits // 32), mx.uint32)  # (…, O, W)
    scales = mx.zeros((*outer, inputs // GROUP), dtype if packing.mode == "affine" else mx.uint8)
    return Packed(entry.name, weight, scales, scales if packing.mode == "affine" else None, packing)


# Gives each piece of a tensor, as its first row and its bytes (rows, size), to a function that puts it in its place.
Reader = Callable[[Entry, Callable[[int, np.ndarray], None]], None]


@contextmanager
def reader() -> Iterator[Reader]:
    """A reader of tensors that takes their pieces apart side by side."""
    with ThreadPoolExecutor(runtime.threads()) as pool:
        yield lambda entry, place: _read_pieces(entry, place, pool)


def _read_pieces(entry: Entry, place: Callable[[int, np.ndarray], None], pool: Executor) -> None:
    rows = int(np.prod(entry.shape[:-1], dtype=np.int64))
    size, step = entry.size // rows, max(1, CHUNK // entry.shape[-1])
    try:
        file = os.open(entry.path, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"{entry.path}: {error.strerror}") from error

    def one(first: int) -> None:
        count = min(step, rows - first)
        try:
            data = os.pread(file, count * size, entry.offset + first * size)
        except OSError as error:
            raise CheckpointError(f"{entry.path}: {error.strerror}") from error
        if len(data) != count * size:
            raise CheckpointError(f"{entry.path}: ends within tensor {entry.name}")
        with np.errstate(all="ignore"):  # a damaged scale is not a number
            place(first, np.frombuffer(data, np.uint8).reshape(count, size))

    try:
        list(pool.map(one, range(0, rows, step)) if rows > step else map(one, (0,)))
    finally:
        os.close(file)


def read(entry: Entry, dtype: mx.Dtype, take_apart: Reader | None = None) -> Any:
    """The tensor: a `Packed` whose scales are of `dtype`, or an array of that."""
    if take_apart is None:
        with reader() as take_apart:
            return read(entry, dtype, take_apart)
    if not stays_packed(entry):
        return _read_numbers(entry, dtype, take_apart)
    packing = PACKINGS[entry.kind]
    *outer, inputs = entry.shape
    weight, words = _room((*outer, inputs * packing.bits // 32), mx.uint32)
    if packing.mode != "affine":
        scales, scale = _room((*outer, inputs // GROUP), mx.uint8)

        def place_floats(first: int, data: np.ndarray) -> None:
            rows = slice(first, first + len(data))
            for part, found in zip((words, scale), mxfp4(data.reshape(-1, 17)), strict=True):
                part[rows] = found.reshape(len(data), -1)

        take_apart(entry, place_floats)
        return Packed(entry.name, weight, scales, None, packing)
    (scales, scale), (biases, bias) = (_room((*outer, inputs // GROUP), dtype) for _ in range(2))
    _, block, apart = AFFINE[entry.kind]

    def place(first: int, data: np.ndarray) -> None:
        rows = slice(first, first + len(data))
        blocks = data.reshape(len(data) * (inputs // block), -1)
        for part, found in zip((words, scale, bias), apart(blocks), strict=True):
            _put(part, rows, found.reshape(len(data), -1))

    take_apart(entry, place)
    return Packed(entry.name, weight, _of(scales, dtype), _of(biases, dtype), packing)


def _read_numbers(entry: Entry, dtype: mx.Dtype, take_apart: Reader) -> mx.array:
    array, numbers = _room(entry.shape, dtype)
    from gguf import GGMLQuantizationType, dequantize

    def place(first: int, data: np.ndarray) -> None:
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

    take_apart(entry, place)
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
