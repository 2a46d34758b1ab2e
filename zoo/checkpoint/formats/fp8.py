"""FP8 with a scale for each block, as DeepSeek-V3 was released and transformers' fine-grained FP8 writes it.

A matrix (O, I) is E4M3; `weight_scale_inv` (P, Q) multiplies its blocks of `weight_block_size`, 128 × 128 as released
(DeepSeek-V3 technical report, 2024, section 3.3), or all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.floats import are_powers, fp8
from zoo.checkpoint.formats.format_reader import FormatReader, is_float
from zoo.checkpoint.quantization_settings import refused
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

SCALE = "_scale_inv"


def read_fp8(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """FP8 matrices, packed where their scales allow it. ConfigError for other block sizes; CheckpointError naming a tensor."""
    sizes = block_sizes(settings, "weight_block_size")
    reader = FormatReader(tensors, dtype)
    reader.drop("activation_scale", "input_scale")
    names = reader.owners(SCALE)  # of matrices: stacked experts have no ".weight" of their own
    powers = _powers(reader, names) if settings.get("scale_fmt") == "ue8m0" else set()
    for name in names:
        if reader.kind(name) != "F8_E4M3":
            raise CheckpointError(f"{name}{SCALE}: no {name} of F8_E4M3 beside it")
        fp8(reader, name, name + SCALE, sizes, name in powers)
    return reader.result()


def block_sizes(
    settings: Mapping[str, Any], key: str, entry: Mapping[str, Any] | None = None
) -> list[tuple[int, int]]:
    """The size of a block, outputs and inputs, that the settings give, or an `entry` in them; none for null.

    ConfigError when it is no such.
    """
    value = (settings if entry is None else entry).get(key)
    if value is None:
        return []
    if isinstance(value, list) and len(value) == 2:
        rows, columns = value
        if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return [(rows, columns)]
    raise refused(settings, f"{key} {value!r}: expected two sizes")


def _powers(reader: FormatReader, names: list[str]) -> set[str]:
    """Those whose scales are powers of two, as the config promises of all; the scales are read for it."""
    scales = {name: reader.arrays[name + SCALE] for name in names}
    found = {name: are_powers(scale) for name, scale in scales.items() if is_float(scale) and scale.size}
    mx.eval(found)
    return {name for name, are in found.items() if are.item()}
