"""bitsandbytes (https://github.com/bitsandbytes-foundation/bitsandbytes): 4 bits by a table, 8 bits with a scale an output.

Four bits (NF4, FP4; Dettmers et al., 2023, "QLoRA", section 3): `weight` is bytes of two codes each, the first in the high
half; `weight.quant_map` (16,) has their numbers, `weight.absmax` a factor for each `blocksize` numbers of the matrix, row
after row. Where `weight.nested_absmax` is there, `absmax` is itself of codes, of `nested_quant_map` (256,), with a
factor for each `nested_blocksize`, and `nested_offset` is added. `weight.quant_state.bitsandbytes__nf4` is a JSON text in
bytes with these sizes and the shape. MLX has no such table, so these matrices are unpacked.

Eight bits (Dettmers et al., 2022, "LLM.int8()", section 2.1): number = `weight` (O, I) · `SCB` (O,) / 127.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.integers import affine, consecutive, signed_bytes
from zoo.checkpoint.quantized_matrix import is_float
from zoo.checkpoint.quantized_tensors import FormatReader, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
from zoo.files.reading import parse_json

STATES = (".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4")
PARTS = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
MOST_STATE = 10_000  # bytes


def read_bitsandbytes(
    tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None
) -> Tensors:
    """Matrices of 8 bits packed, those of 4 bits unpacked. CheckpointError naming a tensor.

    What the settings leave in floats (`llm_int8_skip_modules`) shows in the tensors.
    """
    reader = FormatReader(tensors, dtype)
    for state in STATES:
        for name in reader.owners(state):
            _by_table(reader, name, name + state)
    for owner in reader.owners(".SCB"):
        _eight_bits(reader, owner)
    return reader.result()


def _by_table(reader: FormatReader, name: str, state_name: str) -> None:
    """Add the matrix `name` of four bits."""
    state = _state(reader, state_name)
    # Other dtypes than bytes, by `bnb_4bit_quant_storage`, hold the same bytes.
    codes = reader.need(name, state_name).flatten().view(mx.uint8)
    parts = {f"{name}.{part}": reader.take(f"{name}.{part}") for part in PARTS}
    factors, table, nested, nested_table = parts.values()
    shape, size, block = state["shape"], math.prod(state["shape"]), state["blocksize"]
    fits = codes.size == (size + 1) // 2
    if not fits or table is None or table.size != 16 or not is_float(table):
        raise mismatched_parts({name: codes, **parts})
    if factors is None or factors.size != -(-size // block):
        raise mismatched_parts({name: codes, **parts})
    if nested is not None:
        count = -(-factors.size // state["nested_blocksize"])
        known = factors.dtype == mx.uint8 and nested.size == count
        if nested_table is None or nested_table.size != 256 or not known:
            raise mismatched_parts({name: codes, **parts})
        factors = _times(
            nested_table.flatten()[factors.flatten()], nested.flatten(), state["nested_blocksize"]
        )
        factors = factors + state["nested_offset"]
    elif not is_float(factors):
        raise mismatched_parts({name: codes, **parts})
    halves = mx.stack([codes >> 4, codes & 15], axis=-1).flatten()[:size]
    numbers = _times(table.astype(mx.float32).flatten()[halves], factors.astype(mx.float32).flatten(), block)
    reader.give(name, numbers.reshape(shape))


def _times(numbers: mx.array, factors: mx.array, block: int) -> mx.array:
    """Each `block` of numbers (N,) times its factor; the last may be smaller."""
    return numbers * mx.repeat(factors, block)[: numbers.size]


def _state(reader: FormatReader, name: str) -> Mapping[str, Any]:
    """The sizes of a matrix, from the JSON text in a tensor's bytes. CheckpointError where they are none."""
    text = reader.need(name, name)
    if text.dtype != mx.uint8 or text.size > MOST_STATE:
        raise CheckpointError(f"{name}: not a JSON text in bytes")
    try:
        state = parse_json(bytes(text.flatten().tolist()).decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{name}: not a JSON text in bytes ({error})") from error
    state = {"nested_blocksize": 1, "nested_offset": 0.0, **state} if isinstance(state, dict) else {}
    shape, sizes = state.get("shape"), (state.get("blocksize"), state.get("nested_blocksize"))
    if not isinstance(shape, list) or not all(
        type(size) is int and 0 < size < 2**31 for size in (*shape, *sizes)
    ):
        raise CheckpointError(f"{name}: names no shape and size of blocks")
    if not isinstance(state["nested_offset"], int | float):
        raise CheckpointError(f"{name}: nested_offset {state['nested_offset']!r} is no number")
    return state


def _eight_bits(reader: FormatReader, owner: str) -> None:
    """Add the matrix of eight bits that `owner` has."""
    name, scale_name = f"{owner}.weight", f"{owner}.SCB"
    codes, scales = reader.need(name, scale_name), reader.need(scale_name, scale_name)
    layout = f"{owner}.weight_format"
    if layout in reader.arrays and (order := reader.whole_numbers(layout, 1)) != [0]:
        raise CheckpointError(f"{layout}: {order[0]}, where 0, whole rows, is known")
    if codes.ndim != 2 or codes.dtype != mx.int8 or scales.size != len(codes) or not is_float(scales):
        raise mismatched_parts({name: codes, scale_name: scales})
    words, middle = signed_bytes(codes)
    scales = scales.astype(mx.float32).reshape(-1, 1) / 127
    affine(reader, name, words, 8, scales, middle, consecutive(codes.shape[1], codes.shape[1]))
