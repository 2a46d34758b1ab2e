"""The tensors of a GGUF file, packed as MLX packs where that is exact, else as the numbers that they stand for.

Axes: O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.checkpoint.gguf_blocks import AFFINE, GROUP, mxfp4, words
from zoo.checkpoint.gguf_header import Entry
from zoo.checkpoint.packed import Packed, Packing
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
from zoo.notices import notice

CHUNK = 2**22  # numbers that are unpacked at once

PACKINGS = {kind: Packing(bits, GROUP) for kind, (bits, _, _) in AFFINE.items()}
PACKINGS["MXFP4"] = Packing(4, GROUP, "mxfp4")
# What numpy calls the kinds that are plain numbers; it has no bfloat16.
PLAIN = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
# The kinds whose numbers, or scales and biases, a smaller float than float32 holds as they are.
SMALLER = {"BF16": mx.bfloat16}
SMALLER |= dict.fromkeys(("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"), mx.float16)


@dataclass
class GGUFTensors(Tensors):
    """The tensors of a GGUF file. `arrays` have their shapes and no numbers; `read` gives those that have."""

    entries: Mapping[str, Entry] = field(default_factory=dict)

    def held(self, dtype: mx.Dtype | None) -> int:
        """The bytes of what `read` gives."""
        dtype = dtype or own_dtype(self.entries.values())
        return sum(unread(entry, dtype).nbytes for entry in self.entries.values())

    def read(self, dtype: mx.Dtype | None) -> Tensors:
        """The tensors themselves, floats cast to `dtype` (None: the smallest that holds all matrices as they are).

        They are read one after the other, the largest first: what one takes while it is read is never on top of all.
        """
        dtype = dtype or own_dtype(self.entries.values())
        warn_of_unpacked(self.entries.values(), dtype)
        order = sorted(self.entries.values(), key=lambda entry: -entry.size)
        return Tensors({entry.name: read(entry, dtype) for entry in order}, self.dtypes, self.metadata)


def tensors_of(entries: Mapping[str, Entry]) -> GGUFTensors:
    """The tensors that a header names, unread; CheckpointError for a kind that nothing here can unpack."""
    for entry in {entry.kind: entry for entry in entries.values()}.values():
        check_kind(entry)
    dtype = own_dtype(entries.values())
    arrays = {name: unread(entry, dtype) for name, entry in entries.items()}
    kinds = {name: entry.kind for name, entry in entries.items()}
    return GGUFTensors(arrays, kinds, {"format": "gguf"}, entries=entries)


def own_dtype(entries: Iterable[Entry]) -> mx.Dtype:
    """The smallest float that holds the numbers, scales and biases of all matrices as they are."""
    wanted = {SMALLER.get(entry.kind, mx.float32) for entry in entries if len(entry.shape) > 1}
    return wanted.pop() if len(wanted) == 1 else mx.float32


def stays_packed(entry: Entry) -> bool:
    """Whether one of MLX's packings holds the tensor as it is."""
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
        raise CheckpointError(
            f"{entry.path}: tensor {entry.name} is of type {entry.kind}, which cannot be unpacked"
        ) from None


def warn_of_unpacked(entries: Iterable[Entry], dtype: mx.Dtype) -> None:
    """Say which kinds have no packed form."""
    kinds = Counter(e.kind for e in entries if e.kind not in PLAIN and not stays_packed(e))
    if kinds:
        what = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
        name = str(dtype).removeprefix("mlx.core.")
        notice(f"tensors that no packing of MLX holds exactly, dequantized to {name}: {what}")


def unread(entry: Entry, dtype: mx.Dtype) -> Any:
    """What `read` will give, with zeros that take no memory while nobody asks for them."""
    if not stays_packed(entry):
        return mx.zeros(entry.shape, dtype)
    *outer, inputs = entry.shape
    packing = PACKINGS[entry.kind]
    weight = mx.zeros((*outer, inputs * packing.bits // 32), mx.uint32)  # (…, O, W)
    scales = mx.zeros((*outer, inputs // GROUP), dtype if packing.mode == "affine" else mx.uint8)
    return Packed(entry.name, weight, scales, scales if packing.mode == "affine" else None, packing)


def read(entry: Entry, dtype: mx.Dtype) -> Any:
    """The tensor, a piece at a time: a `Packed` whose scales are of `dtype`, or an array of that."""
    *outer, inputs = entry.shape
    rows = int(np.prod(outer, dtype=np.int64))
    step = max(1, CHUNK // inputs)
    pieces: dict[str, list[mx.array]] = {}
    for first in range(0, rows, step):
        data = _bytes(entry, first, min(step, rows - first), entry.size // rows)
        with np.errstate(all="ignore"):  # a damaged scale is not a number
            piece = _packed(entry, data, dtype) if stays_packed(entry) else {"": _numbers(entry, data, dtype)}
        mx.eval(*piece.values())
        for part, array in piece.items():
            pieces.setdefault(part, []).append(array)
    whole = {}
    for part in list(pieces):
        whole[part] = mx.concatenate(pieces.pop(part)).reshape(*outer, -1)
        mx.eval(whole[part])
    if "" in whole:
        return whole[""]
    return Packed(entry.name, whole["weight"], whole["scales"], whole.get("biases"), PACKINGS[entry.kind])


def _bytes(entry: Entry, first: int, rows: int, size: int) -> np.ndarray:  # (rows, size)
    """Some rows of `size` bytes."""
    try:
        data = np.fromfile(entry.path, np.uint8, rows * size, offset=entry.offset + first * size)
    except OSError as error:
        raise CheckpointError(f"{entry.path}: {error.strerror}") from error
    if data.size != rows * size:
        raise CheckpointError(f"{entry.path}: ends within tensor {entry.name}")
    return data.reshape(rows, size)


def _packed(entry: Entry, data: np.ndarray, dtype: mx.Dtype) -> dict[str, mx.array]:
    """Words (O, W), scales and biases (O, G)."""
    rows = data.shape[0]
    if entry.kind not in AFFINE:
        numbers, scale = mxfp4(data.reshape(-1, 17))
        packed = words(numbers.reshape(rows, -1), 4)
        return {"weight": mx.array(packed), "scales": mx.array(scale.reshape(rows, -1))}
    bits, block, apart = AFFINE[entry.kind]
    numbers, scale, bias = apart(data.reshape(rows * (entry.shape[-1] // block), -1))
    return {
        "weight": mx.array(words(numbers.reshape(rows, -1), bits)),
        "scales": mx.array(scale.reshape(rows, -1)).astype(dtype),
        "biases": mx.array(bias.reshape(rows, -1)).astype(dtype),
    }


def _numbers(entry: Entry, data: np.ndarray, dtype: mx.Dtype) -> mx.array:
    """The numbers, (O, I)."""
    if entry.kind == "BF16":
        return mx.array(data.view(np.uint16)).view(mx.bfloat16).astype(dtype)
    if entry.kind in PLAIN:
        numbers = data.view(PLAIN[entry.kind])
        return mx.array(numbers.astype(np.float32) if entry.kind == "F64" else numbers).astype(dtype)
    from gguf import GGMLQuantizationType, dequantize

    return mx.array(dequantize(data, GGMLQuantizationType[entry.kind])).astype(dtype)
