"""AWQ, as AutoAWQ writes it in its "gemm" layout (Lin et al., 2023; https://github.com/casper-hansen/AutoAWQ).

`qweight` (I, O/8) and `qzeros` (G, O/8) hold eight 4-bit numbers a word, of outputs 0, 2, 4, 6, 1, 3, 5, 7 of eight;
`scales` (G, O). number = scale · (code − zero), groups of I/G inputs that follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.affine import affine, consecutive
from zoo.checkpoint.formats.format_reader import FormatReader, is_float, is_words, mismatched_parts
from zoo.checkpoint.formats.words import transpose_nibbles, unpack
from zoo.checkpoint.quantization_settings import choice, refused
from zoo.checkpoint.safetensors import Tensors

BITS = 4
EACH = 8  # numbers a word
ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in its word each of eight outputs is


def read_awq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """AWQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor."""
    for key in ("version", "format"):
        choice(settings, key, ("gemm",), "gemm")
    bits = settings.get("bits", settings.get("w_bit", BITS))
    if bits != BITS:
        raise refused(settings, f"awq: bits {bits!r} cannot be loaded; known: {BITS}")
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".qweight"):
        _matrix(reader, owner, zero_point=bool(settings.get("zero_point", True)))
    return reader.result()


def _matrix(reader: FormatReader, owner: str, zero_point: bool) -> None:
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    scales = reader.need(f"{owner}.scales", name)
    zeros = reader.need(f"{owner}.qzeros", name) if zero_point else reader.take(f"{owner}.qzeros")
    parts = {name: codes, f"{owner}.scales": scales, f"{owner}.qzeros": zeros}
    if codes.ndim != 2 or scales.ndim != 2 or not is_words(codes) or not is_float(scales):
        raise mismatched_parts(parts)
    (inputs, words), (groups, outputs) = codes.shape, scales.shape
    if outputs != EACH * words or inputs % groups or inputs % EACH:
        raise mismatched_parts(parts)
    if zeros is not None and (zeros.shape != (groups, words) or not is_words(zeros)):
        raise mismatched_parts(parts)
    points = 2 ** (BITS - 1) if zeros is None else unpack(zeros, BITS, ORDER).T  # (O, G)
    columns = transpose_nibbles(codes)  # each (W, O/8): every eighth output's words
    rows = mx.stack([columns[index].T for index in ORDER], axis=1).flatten(0, 1)  # (O, W)
    affine(reader, f"{owner}.weight", rows, BITS, scales.T, points, consecutive(inputs, inputs // groups))
