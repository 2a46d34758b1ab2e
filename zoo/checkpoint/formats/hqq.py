"""HQQ (Badri and Shaji, 2023; https://github.com/mobiusml/hqq), as transformers 4 saved it: a tensor for each entry of a layer's state.

A matrix (O, I) is reshaped, row by row, to a grid of groups: (O · I / size, size) if `axis` is 1, (size, O · I / size) if it is 0.
`W_q` packs the rows of the grid. With four bits a byte holds a row of the grid's first half in its high bits and one of the
second half in its low bits; with two bits, one row of each quarter. With three bits a 32-bit word holds one row of each tenth;
the last rows are padding. `scale` and `zero` have one number a group: number = scale · (code − zero).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.integers import affine, consecutive, pack
from zoo.checkpoint.quantized_matrix import is_float
from zoo.checkpoint.quantized_tensors import FormatReader, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

# How many rows of the grid are in one of `W_q`, the bits of each, and the kind of number that holds them.
PACKINGS = {
    "8bit_u8": (1, 8, mx.uint8),
    "4bit_u8": (2, 4, mx.uint8),
    "2bit_u8": (4, 2, mx.uint8),
    "1bit_u8": (8, 1, mx.uint8),
    "3bit_32": (10, 3, mx.int32),
}
LONGEST = 16  # characters of a packing's name that are read
SETTINGS = (
    *("nbits", "group_size", "unpack_view_dtype", "view_as_float", "compute_dtype", "offload_meta"),
    *("encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"),
)


def read_hqq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """Matrices packed where their groups are of inputs, unpacked elsewhere. CheckpointError naming a tensor."""
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".W_q"):
        _matrix(reader, owner)
    return reader.result()


def _matrix(reader: FormatReader, owner: str) -> None:
    """Add the matrix that `owner` has. Its sizes and its packing are read here."""
    name = f"{owner}.W_q"
    codes, scales, zeros = (reader.need(f"{owner}.{part}", name) for part in ("W_q", "scale", "zero"))
    outputs, inputs = reader.whole_numbers(f"{owner}.shape", 2)
    [axis] = reader.whole_numbers(f"{owner}.axis", 1)
    packing = reader.need(f"{owner}.packing", name)
    for part in ("quant_scale", "quant_zero"):
        if f"{owner}.{part}" in reader.arrays and reader.whole_numbers(f"{owner}.{part}", 1) != [0]:
            raise CheckpointError(
                f"{owner}.{part}: scales or zero points that are quantized cannot be loaded"
            )
    for part in SETTINGS:
        reader.take(f"{owner}.{part}")
    parts = {name: codes, f"{owner}.scale": scales, f"{owner}.zero": zeros}
    kind = bytes(packing.flatten()[:LONGEST].astype(mx.uint8).tolist()).decode("ascii", "replace")
    if kind not in PACKINGS:
        raise CheckpointError(f"{owner}.packing: {kind!r} cannot be loaded; known: {', '.join(PACKINGS)}")
    rows, bits, words = PACKINGS[kind]
    if codes.ndim != 2 or axis > 1 or not (is_float(scales) and is_float(zeros)):
        raise mismatched_parts(parts)
    codes, groups = codes.view(words), scales.size  # `view_as_float` shows the same bytes as floats
    size, rest = divmod(outputs * inputs, groups)
    height, width = (groups, size) if axis == 1 else (size, groups)
    if rest or not size or zeros.size not in (1, groups) or codes.shape != (-(-height // rows), width):
        raise mismatched_parts(parts)
    shifts = [bits * (rows - 1 - row) for row in range(rows)]
    grid = mx.concatenate([(codes >> shift) & (2**bits - 1) for shift in shifts])[:height]
    zeros = mx.broadcast_to(zeros.flatten(), (groups,))
    if axis == 1 and inputs % size == 0:
        words_of_rows = pack(grid.reshape(outputs, inputs), bits)
        by_row = (outputs, inputs // size)
        grouping = consecutive(inputs, size)
        affine(
            reader,
            f"{owner}.weight",
            words_of_rows,
            bits,
            scales.reshape(by_row),
            zeros.reshape(by_row),
            grouping,
        )
        return
    one_a_group = (groups, 1) if axis == 1 else (1, groups)
    numbers = grid.astype(mx.float32) - zeros.astype(mx.float32).reshape(one_a_group)
    numbers = numbers * scales.astype(mx.float32).reshape(one_a_group)
    reader.give(f"{owner}.weight", numbers.reshape(outputs, inputs))
