"""torchao's tensors (https://github.com/pytorch/ao) in safetensors, each by the name of its class in the file's metadata.

`X.weight` is in parts, `X._weight_qdata`, `X._weight_scale` and `X._weight_zero_point`; the metadata's entry `X.weight` is a JSON
object with the class, `_type`, and its values, `_data`.

    Int8Tensor, IntxUnpackedToInt8Tensor   qdata (O, I) of signed bytes, scale and zero point (O, G): scale · (code − zero)
    Int4Tensor                             qdata (O, I/2), two signed codes a byte, the first in the low half, scale and
                                           zero point (G, O), the latter a float: scale · code + zero
    Float8Tensor                           qdata (O, I) of E4M3, scale for each output or for all
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.floats import fp8
from zoo.checkpoint.formats.integers import affine, in_turn, pack, signed_bytes
from zoo.checkpoint.quantization_settings import AFFINE_BITS
from zoo.checkpoint.quantized_matrix import is_float
from zoo.checkpoint.quantized_tensors import FormatReader, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError
from zoo.files.reading import parse_json

CLASSES = ("Int8Tensor", "IntxUnpackedToInt8Tensor", "Int4Tensor", "Float8Tensor")
UNUSED = ("act_quant_scale", "act_quant_zero_point")  # of activations, which are floats here


def read_torchao(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """Matrices packed where MLX has such groups. CheckpointError for another class, naming the tensor."""
    reader = FormatReader(tensors, dtype)
    for name, text in tensors.metadata.items():
        entry = _entry(name, text)
        kind = entry.get("_type")
        if kind in (None, "Tensor"):
            continue
        owner, _, parameter = name.rpartition(".")
        prefix = f"{owner}._{parameter}_"
        if kind not in CLASSES:
            raise CheckpointError(f"{name}: torchao's {kind} cannot be loaded; known: {', '.join(CLASSES)}")
        if f"{prefix}act_pre_scale" in reader.arrays:
            raise CheckpointError(f"{prefix}act_pre_scale: scaled activations cannot be loaded")
        for part in UNUSED:
            reader.take(prefix + part)
        if kind == "Float8Tensor":
            reader.tensors.dtypes[name] = reader.kind(f"{prefix}qdata")
            reader.arrays[name] = reader.need(f"{prefix}qdata", name)
            fp8(reader, name, f"{prefix}scale")
        else:
            _integers(reader, name, prefix, kind, entry.get("_data") or {})
    return reader.result()


def _entry(name: str, text: str) -> Mapping[str, Any]:
    """What the metadata says of a tensor; nothing for entries of another kind."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and "." in name else {}


def _integers(reader: FormatReader, name: str, prefix: str, kind: str, values: Mapping[str, Any]) -> None:
    """Add a matrix of whole numbers."""
    codes = reader.need(f"{prefix}qdata", name)
    scales, zeros = reader.need(f"{prefix}scale", name), reader.take(f"{prefix}zero_point")
    parts = {f"{prefix}qdata": codes, f"{prefix}scale": scales, f"{prefix}zero_point": zeros}
    four = kind == "Int4Tensor"
    if codes.ndim != 2 or scales.ndim != 2 or not is_float(scales) or codes.dtype not in (mx.int8, mx.uint8):
        raise mismatched_parts(parts)
    scales = scales.T if four else scales  # (O, G)
    zeros = zeros.T if four and zeros is not None else zeros
    inputs = codes.shape[1] * (2 if four else 1)
    grouping = in_turn(inputs, scales.shape[1], [])
    if len(scales) != len(codes) or grouping is None or (zeros is not None and zeros.shape != scales.shape):
        raise mismatched_parts(parts)
    if four:
        if inputs % 8:
            raise mismatched_parts(parts)
        bits, words = 4, (codes.view(mx.uint8) ^ 0x88).view(mx.uint32)
    else:
        bits, words = _packed_codes(codes, values)
    middle = 2 ** (bits - 1)
    points: mx.array | int = middle
    if zeros is not None and four:
        points = middle - zeros.astype(mx.float32) / scales.astype(mx.float32)
    elif zeros is not None:
        points = zeros.astype(mx.float32) + middle
    affine(reader, name, words, bits, scales, points, grouping)


def _packed_codes(codes: mx.array, values: Mapping[str, Any]) -> tuple[int, mx.array]:
    """The bits that signed bytes (O, I) need, by their `target_dtype`, and the codes in words of as many bits each."""
    target = values.get("target_dtype")
    named = str(target.get("_data")) if isinstance(target, dict) else "int8"
    bits = int(named[3:]) if named.startswith("int") and named[3:].isdecimal() else 8
    if bits not in AFFINE_BITS or bits == 8:
        return 8, signed_bytes(codes)[0]
    return bits, pack(codes.astype(mx.int32) + 2 ** (bits - 1), bits)
