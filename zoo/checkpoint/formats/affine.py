"""Whole numbers with a scale and a zero point for each group of inputs, as MLX's affine quantization.

number = scale · (code − zero) = scale · code + bias, where MLX's groups are of 32, 64 or 128 inputs that follow one
another. Larger groups repeat their scale; groups of scattered inputs become such by a permutation of the inputs.

Axes: O outputs, I inputs, W words, G groups, B blocks of inputs that follow one another and share a scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.format_reader import FormatReader
from zoo.checkpoint.formats.words import reorder, unpack
from zoo.checkpoint.quantization_modes import AFFINE_BITS, AFFINE_GROUPS
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.errors import CheckpointError

BLOCKS = tuple(sorted(AFFINE_GROUPS, reverse=True))


@dataclass(frozen=True)
class Grouping:
    """Which group each input is in: `groups` (I,). In the order of `permutation`, each `block` of inputs share one.

    `blocks` (B,) are those; None where they are all the groups in turn. `block` is None where no size that MLX knows
    divides the groups.
    """

    groups: mx.array
    block: int | None
    blocks: mx.array | None = None
    permutation: mx.array | None = None


def consecutive(inputs: int, size: int) -> Grouping:
    """Groups of `size` inputs that follow one another; the last may be smaller."""
    block = next((block for block in BLOCKS if size % block == 0 and inputs % block == 0), None)
    groups = mx.arange(inputs) // size
    return Grouping(groups, block, groups[::block] if block not in (None, size) else None)


def in_turn(inputs: int, groups: int, sizes: Iterable[Any]) -> Grouping | None:
    """Consecutive groups, of the first of the `sizes` that a config names which gives so many groups, else equal ones.

    None where there are no such groups.
    """
    for size in sizes:
        if type(size) is int and size > 0 and -(-inputs // size) == groups:
            return consecutive(inputs, size)
    return None if inputs % groups else consecutive(inputs, inputs // groups)


def scattered(indices: Mapping[str, tuple[mx.array, int]]) -> dict[str, Grouping]:
    """The groupings by name, from each input's group (I,) and the number of groups.

    They are read here, all at once, since the shapes of what is computed depend on them. CheckpointError when a group
    is out of range.
    """
    found = {name: index.astype(mx.int32) for name, (index, _) in indices.items()}
    facts = {
        name: mx.stack([index.min(), index.max(), (index[1:] < index[:-1]).any().astype(mx.int32)])
        for name, index in found.items()
    }
    mx.eval(facts)
    orders, ordered = {}, {}
    for name, index in found.items():
        low, high, mixed = facts[name].tolist()
        if low < 0 or high >= indices[name][1]:
            raise CheckpointError(f"{name}: groups {low} to {high}, but there are {indices[name][1]}")
        orders[name] = mx.argsort(index) if mixed else None
        ordered[name] = index[orders[name]] if mixed else index
    fits = {
        name: {block: _fits(index, block) for block in BLOCKS if index.size % block == 0}
        for name, index in ordered.items()
    }
    mx.eval(fits)
    groupings = {}
    for name, index in found.items():
        block = next((block for block, fit in fits[name].items() if fit.item()), None)
        blocks = None if block is None else ordered[name][::block]
        groupings[name] = Grouping(index, block, blocks, orders[name])
    return groupings


def _fits(index: mx.array, block: int) -> mx.array:
    blocks = index.reshape(-1, block)
    return (blocks == blocks[:, :1]).all()


def affine(
    reader: FormatReader,
    name: str,
    words: mx.array,
    bits: int,
    scales: mx.array,
    zeros: mx.array | int,
    grouping: Grouping,
) -> None:
    """Add to the reading the matrix of `words` (O, W), `scales` (O, G) and `zeros`: (O, G), or one power of two for all.

    Where the zero points differ, −scale · zero needs more bits than a half has: scales and biases are float32 then.
    """
    inputs, differ = grouping.groups.size, isinstance(zeros, mx.array)
    wide = scales.astype(mx.float32) if differ else scales
    if grouping.block is None or bits not in AFFINE_BITS:
        codes = unpack(words, bits)[:, :inputs].astype(mx.float32)
        offsets = zeros[:, grouping.groups].astype(mx.float32) if isinstance(zeros, mx.array) else zeros
        reader.give(name, (codes - offsets) * wide.astype(mx.float32)[:, grouping.groups])
        return
    biases = -wide * zeros
    if grouping.blocks is not None:
        # Rows are gathered several times faster than columns.
        wide, biases = wide.T[grouping.blocks].T, biases.T[grouping.blocks].T
    if grouping.permutation is not None:
        words = reorder(words.T, bits, grouping.permutation).T
    matrix = QuantizedMatrix(
        name,
        words.view(mx.uint32),
        wide,
        biases,
        QuantizationSpec(bits, grouping.block),
        permutation=grouping.permutation,
        floats=scales.dtype if differ else None,
        certain=True,
    )
    reader.give(name, matrix)
