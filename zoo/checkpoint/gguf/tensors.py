"""The tensors of a GGUF file, packed as MLX packs where that is exact, else as the numbers that they stand for.

Axes: O rows, I inputs, G groups of 32 inputs, W words of 32 bits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from zoo import runtime
from zoo.checkpoint.gguf.header import TensorInfo
from zoo.checkpoint.gguf.quantized_blocks import GROUP
from zoo.checkpoint.gguf.read_tensors import PLAIN, QUANTIZATIONS, Reader, read_tensor, stays_packed
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.deferred_warnings import warn
from zoo.errors import CheckpointError

REQUANTIZATIONS = {bits: QuantizationSpec(bits, GROUP) for bits in (4, 6, 8)}
LAYER = re.compile(r"(?:\w+\.)?blk\.\d+\.")  # begins the names of a layer's tensors
# The kinds whose numbers, or scales and biases, a smaller float than float32 holds as they are.
SMALLER = {"BF16": mx.bfloat16}
SMALLER |= dict.fromkeys(("F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"), mx.float16)
WIDER = ("F32", "F64", "Q4_K", "Q5_K")  # that only float32 holds so


@dataclass
class Requantized:
    """The error of requantizing to `bits`: each tensor's kind, and the sums of its squared errors and squared numbers."""

    bits: int
    tensors: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def add(self, entry: TensorInfo, matrix: mx.array, packed: QuantizedMatrix) -> None:
        """Note one more."""
        error = total = 0.0
        for piece, other in zip(_parts(matrix), _parts(packed), strict=True):
            error += mx.square(piece - other.numbers(mx.float32)).sum().item()
            total += mx.square(piece).sum().item()
        self.tensors[entry.name] = entry.kind, error, total

    def warn(self) -> None:
        """Say in one line what was lost."""
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
    for entry in {entry.kind: entry for entry in entries}.values():
        check_kind(entry)


def read_requantized(
    entry: TensorInfo, dtype: mx.Dtype, bits: int | None, losses: Requantized, take_apart: Reader
) -> Any:
    """The tensor with its numbers; what no quantization holds exactly in so many `bits`, `losses` noting the error."""
    quantization = quantization_of(entry, bits)
    if quantization is None or stays_packed(entry):
        return read_tensor(entry, dtype, take_apart)
    matrix = read_tensor(entry, mx.float32, take_apart)
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
    """The smallest float that holds the numbers, scales and biases of all matrices as they are.

    A device may prefer another where some have no quantization of their own, which then is that of all: a product of two
    kinds of floats would cast one of them each time.
    """
    kinds = {entry.kind for entry in entries if len(entry.shape) > 1}
    if kinds - {*SMALLER, *WIDER} and runtime.dequantized_dtype() != mx.float32:
        return mx.bfloat16 if "BF16" in kinds else runtime.dequantized_dtype()
    wanted = {SMALLER.get(kind, mx.float32) for kind in kinds}
    return wanted.pop() if len(wanted) == 1 else mx.float32


def quantization_of(entry: TensorInfo, repack: int | None = None) -> QuantizationSpec | None:
    """The tensor's quantization: the file's, or that asked for; None for a tensor of plain floats."""
    if stays_packed(entry):
        return QUANTIZATIONS[entry.kind]
    fits = len(entry.shape) > 1 and entry.kind not in PLAIN and not entry.shape[-1] % GROUP
    return REQUANTIZATIONS[repack] if repack is not None and fits else None


def check_kind(entry: TensorInfo) -> None:
    """CheckpointError when nothing here knows how the tensor's numbers are packed."""
    if entry.kind in QUANTIZATIONS or entry.kind in PLAIN:
        return
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

    kind = GGMLQuantizationType[entry.kind]
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        raise CheckpointError(
            f"{entry.path}: tensor {entry.name} is of type {entry.kind}, which cannot be unpacked"
        ) from None


def warn_of_dequantized(entries: Iterable[TensorInfo], dtype: mx.Dtype, repack: int | None = None) -> None:
    """Say which kinds have no packed form."""
    kinds = Counter(e.kind for e in entries if e.kind not in PLAIN and quantization_of(e, repack) is None)
    if kinds:
        name = str(dtype).removeprefix("mlx.core.")
        warn(f"tensors that no quantization of MLX holds exactly, dequantized to {name}: {_listed(kinds)}")


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))


def unread(entry: TensorInfo, dtype: mx.Dtype, repack: int | None = None) -> Any:
    """A placeholder of the tensor: zeros that take no memory until they are evaluated."""
    quantization = quantization_of(entry, repack)
    if quantization is None:
        return mx.zeros(entry.shape, dtype)
    *outer, inputs = entry.shape
    weight = mx.zeros((*outer, inputs * quantization.bits // 32), mx.uint32)  # (…, O, W)
    scales = mx.zeros((*outer, inputs // GROUP), dtype if quantization.mode == "affine" else mx.uint8)
    return QuantizedMatrix(
        entry.name, weight, scales, scales if quantization.mode == "affine" else None, quantization
    )
