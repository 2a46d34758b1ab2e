"""The base of the formats' readers: takes the parts of a matrix by name, puts it back under its weight's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import mlx.core as mx

from zoo.checkpoint.quantized_matrix import QuantizedMatrix
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError


class FormatReader:
    """A checkpoint's tensors while a format reads them. Matrices that cannot be packed become `floats`.

    Those are `dtype` where one is given, else the half that the checkpoint has.
    """

    def __init__(self, tensors: Tensors, dtype: mx.Dtype | None = None) -> None:
        self.tensors = tensors
        self.arrays = dict(tensors.arrays)
        kinds = set(tensors.dtypes.values())
        self.floats = dtype or (mx.float16 if "F16" in kinds and "BF16" not in kinds else mx.bfloat16)

    def owners(self, part: str) -> list[str]:
        """The names that end in `part`, without it."""
        return [name.removesuffix(part) for name in self.arrays if name.endswith(part)]

    def kind(self, name: str) -> str:
        """A tensor's dtype as its header names it; "" when there is none."""
        return self.tensors.dtypes.get(name, "") if name in self.arrays else ""

    def take(self, name: str) -> mx.array | None:
        """Remove and return a tensor; None when there is none. CheckpointError when it is empty."""
        array = self.arrays.pop(name, None)
        if array is not None and 0 in array.shape:
            raise CheckpointError(f"{name}: an empty tensor {tuple(array.shape)}")
        return array

    def need(self, name: str, beside: str) -> mx.array:
        """Remove and return a tensor. CheckpointError when it is missing or empty."""
        array = self.take(name)
        if array is None:
            raise CheckpointError(f"{beside}: no {name} beside it")
        return array

    def drop(self, *parts: str) -> None:
        """Drop the tensors whose names end in these parts: they quantize activations, which are floats here."""
        for name in [name for name in self.arrays if name.rpartition(".")[2] in parts]:
            del self.arrays[name]

    def give(self, name: str, matrix: QuantizedMatrix | mx.array) -> None:
        """Add a matrix, and record its name where it is not packed. CheckpointError when the name is taken."""
        if name in self.arrays:
            raise CheckpointError(f"{name}: stands there both quantized and plain")
        if isinstance(matrix, QuantizedMatrix):
            matrix = replace(matrix, dequantized=self.tensors.dequantized)
        else:
            self.tensors.dequantized.add(name)
            matrix = matrix.astype(self.floats)
        self.arrays[name] = matrix

    def result(self) -> Tensors:
        """The tensors with all changes made."""
        return replace(self.tensors, arrays=self.arrays)


def mismatched_parts(parts: Mapping[str, mx.array | None]) -> CheckpointError:
    """The error that tensors, by name, are not the parts of one matrix."""
    described = [
        f"{name} {tuple(array.shape)} {str(array.dtype).removeprefix('mlx.core.')}"
        for name, array in parts.items()
        if array is not None
    ]
    return CheckpointError(f"{', '.join(described)}: not the parts of one quantized matrix")


def is_float(array: mx.array) -> bool:
    """Whether it holds floats that MLX computes with."""
    return mx.issubdtype(array.dtype, mx.floating)


def is_words(array: mx.array) -> bool:
    """Whether it holds words of 32 bits."""
    return array.dtype in (mx.int32, mx.uint32)
