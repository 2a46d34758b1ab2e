"""The whole numbers of compressed-tensors.

Packed: `weight_packed` (O, W) along the inputs, each 2^(bits − 1) more than it means, `weight_shape` the two sizes,
`weight_zero_point` (…, G) packed so along the outputs. Naive: `weight` (O, I) and `weight_zero_point` of 8 signed
bits. `weight_scale` (O, G), (O, 1) or one for all; `weight_g_idx` (I,) each input's group, or −1 where it says nothing.
number = scale · (code − zero).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.affine import affine, in_turn, scattered
from zoo.checkpoint.formats.format_reader import FormatReader, is_float, is_words, mismatched_parts
from zoo.checkpoint.formats.words import unpack
from zoo.checkpoint.quantized_matrix import WORD

BYTE = 8  # bits


@dataclass(frozen=True)
class IntegerMatrix:
    """The parts of one matrix: `codes` packed or not, and the rest. `parts` has them by the names of their tensors."""

    codes: mx.array
    scales: mx.array
    zeros: mx.array | None
    index: mx.array | None
    shape: mx.array | None
    parts: Mapping[str, mx.array | None]


def integers(reader: FormatReader, weights: Sequence[Mapping[str, Any]]) -> None:
    """Add to the reader its matrices of whole numbers; `weights` are the weight settings of the config's groups.

    Each `weight_shape` and `weight_g_idx` is read here. CheckpointError naming tensors that do not fit each other.
    """
    matrices = {owner: _take(reader, owner, "weight_packed") for owner in reader.owners(".weight_packed")}
    for owner in reader.owners(".weight_scale"):
        if reader.kind(f"{owner}.weight") == "I8":
            matrices[owner] = _take(reader, owner, "weight")
    unset = {owner: matrix.index.max() < 0 for owner, matrix in matrices.items() if matrix.index is not None}
    mx.eval([matrix.shape for matrix in matrices.values() if matrix.shape is not None], unset)
    sizes = {owner: _sizes(matrix, weights) for owner, matrix in matrices.items()}
    scattered_groups = scattered(
        {
            f"{owner}.weight_g_idx": (matrix.index, sizes[owner].groups)
            for owner, matrix in matrices.items()
            if matrix.index is not None and not unset[owner].item()
        }
    )
    for owner, matrix in matrices.items():
        size = sizes[owner]
        named = (each.get("group_size") for each in weights)
        grouping = scattered_groups.get(f"{owner}.weight_g_idx") or in_turn(size.inputs, size.groups, named)
        if grouping is None:
            raise mismatched_parts(matrix.parts)
        scales = mx.broadcast_to(matrix.scales.reshape(-1, size.groups), (size.outputs, size.groups))
        words, zeros = _words(matrix), _zeros(matrix, size)
        affine(reader, f"{owner}.weight", words, size.bits, scales, zeros, grouping)


@dataclass(frozen=True)
class MatrixSizes:
    """The sizes of a matrix: outputs, inputs, groups of inputs, bits of a number."""

    outputs: int
    inputs: int
    groups: int
    bits: int


def _take(reader: FormatReader, owner: str, part: str) -> IntegerMatrix:
    name = f"{owner}.{part}"
    names = [f"{owner}.weight_{rest}" for rest in ("scale", "zero_point", "g_idx", "shape")]
    codes = reader.need(name, name)
    scales = reader.need(names[0], name)
    zeros, index = reader.take(names[1]), reader.take(names[2])
    packed = part == "weight_packed"
    shape = reader.need(names[3], name) if packed else None
    parts = dict(zip((name, *names), (codes, scales, zeros, index, shape), strict=True))
    typed = is_words(codes) if packed else codes.dtype == mx.int8
    if codes.ndim != 2 or not typed or not is_float(scales):
        raise mismatched_parts(parts)
    if shape is not None and (shape.size != 2 or not mx.issubdtype(shape.dtype, mx.integer)):
        raise mismatched_parts(parts)
    if index is not None and (index.ndim != 1 or not mx.issubdtype(index.dtype, mx.integer)):
        raise mismatched_parts(parts)
    return IntegerMatrix(codes, scales, zeros, index, shape, parts)


def _sizes(matrix: IntegerMatrix, weights: Sequence[Mapping[str, Any]]) -> MatrixSizes:
    rows, columns = matrix.codes.shape
    if matrix.shape is None:
        outputs, inputs, bits = rows, columns, BYTE
    else:
        outputs, inputs = matrix.shape.flatten().tolist()
        # Rows of few numbers leave open how many bits each has; the config then says it.
        named = [each.get("num_bits") for each in weights]
        known = [number for number in range(1, BYTE + 1) if -(-inputs * number // WORD) == columns]
        if outputs != rows or not known:
            raise mismatched_parts(matrix.parts)
        bits = next((number for number in known if number in named), known[0])
    groups = matrix.scales.shape[-1] if matrix.scales.ndim == 2 else 1
    fits = matrix.scales.size in (1, outputs * groups) and groups <= inputs
    if not fits or (matrix.index is not None and matrix.index.size != inputs):
        raise mismatched_parts(matrix.parts)
    return MatrixSizes(outputs, inputs, groups, bits)


def _words(matrix: IntegerMatrix) -> mx.array:
    """The numbers plus 2^(bits − 1), packed along the inputs."""
    if matrix.shape is not None:
        return matrix.codes
    raised = matrix.codes.view(mx.uint8) ^ 2 ** (BYTE - 1)
    return mx.pad(raised, [(0, 0), (0, -raised.shape[1] % (WORD // BYTE))]).view(mx.uint32)


def _zeros(matrix: IntegerMatrix, size: MatrixSizes) -> mx.array | int:
    """The zero points plus 2^(bits − 1), (O, G); one number where there are none."""
    middle, zeros = 2 ** (size.bits - 1), matrix.zeros
    if zeros is None:
        return middle
    if is_words(zeros) and zeros.shape == (-(-size.outputs * size.bits // WORD), size.groups):
        return unpack(zeros.T, size.bits)[:, : size.outputs].T
    if zeros.dtype != mx.int8 or zeros.size not in (1, size.outputs * size.groups):
        raise mismatched_parts(matrix.parts)
    raised = zeros.astype(mx.int16) + middle
    columns = 1 if zeros.size == 1 else size.groups
    return mx.broadcast_to(raised.reshape(-1, columns), (size.outputs, size.groups))
