"""GPTQ and AWQ: whole numbers in words of 32 bits, with scales and zero points for groups of inputs.

GPTQ, as AutoGPTQ and GPTQModel write it (Frantar et al., 2022; https://github.com/AutoGPTQ/AutoGPTQ): `qweight`
(I · bits / 32, O) packs along the inputs, `qzeros` (G, O · bits / 32) along the outputs; `scales` (G, O);
`g_idx` (I,) says which group each input is in. number = scale · (code − zero). The first `checkpoint_format`, "gptq",
stores each zero point less one, modulo 2^bits; "gptq_v2" stores it as it is.

AWQ, as AutoAWQ writes it in its "gemm" layout (Lin et al., 2023; https://github.com/casper-hansen/AutoAWQ): `qweight`
(I, O/8) and `qzeros` (G, O/8) hold eight 4-bit numbers a word, of outputs 0, 2, 4, 6, 1, 3, 5, 7 of eight;
`scales` (G, O). number = scale · (code − zero), groups of I/G inputs that follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.affine import (
    affine,
    consecutive,
    in_turn,
    repeated,
    scattered,
    transpose_nibbles,
    unpack,
)
from zoo.checkpoint.quantization_settings import choice, refused
from zoo.checkpoint.quantized_matrix import WORD, is_float
from zoo.checkpoint.quantized_tensors import FormatReader, is_words, mismatched_parts
from zoo.checkpoint.safetensors import Tensors

GPTQ_BITS = (2, 3, 4, 8)
AWQ_BITS = 4
AWQ_EACH = 8  # numbers a word
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in its word each of eight outputs is


def read_gptq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """GPTQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor."""
    older = "marlin" if settings.get("is_marlin_format") else settings.get("format") or "gptq"
    layout = choice(settings, "checkpoint_format", ("gptq", "gptq_v2"), older)
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".qweight"):
        _gptq_matrix(reader, owner, settings, less_one=layout == "gptq")
    return reader.result()


def _gptq_matrix(reader: FormatReader, owner: str, settings: Mapping[str, Any], less_one: bool) -> None:
    """Add a matrix; its groups are those of its `g_idx`, else of `group_size` inputs, else as many as fit the scales."""
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    zeros = reader.need(f"{owner}.qzeros", name)
    scales = reader.need(f"{owner}.scales", name)
    index = reader.take(f"{owner}.g_idx")
    parts = {name: codes, f"{owner}.qzeros": zeros, f"{owner}.scales": scales, f"{owner}.g_idx": index}
    if not (codes.ndim == zeros.ndim == scales.ndim == 2) or not is_float(scales):
        raise mismatched_parts(parts)
    bits, rest = divmod(zeros.shape[1] * WORD, codes.shape[1])
    if rest or bits not in GPTQ_BITS or not is_words(codes) or not is_words(zeros):
        raise mismatched_parts(parts)
    inputs, rest = divmod(codes.shape[0] * WORD, bits)
    if rest or scales.shape != (zeros.shape[0], codes.shape[1]):
        raise mismatched_parts(parts)
    if index is not None and (index.shape != (inputs,) or not mx.issubdtype(index.dtype, mx.integer)):
        raise mismatched_parts(parts)
    if index is None:
        grouping = in_turn(inputs, len(scales), [settings.get("group_size")])
    else:
        grouping = scattered(f"{owner}.g_idx", index, len(scales))
    if grouping is None:
        raise mismatched_parts({name: codes, f"{owner}.scales": scales})
    middle = 2 ** (bits - 1)
    points: mx.array | int = middle
    # Zero points in the middle by either layout, since some writers name the wrong one, make biases of
    # −scale · 2^(bits − 1), which are exact in a half. They are read for it.
    if not (settings.get("sym", True) and any(_all_are(zeros, bits, middle - less) for less in (0, 1))):
        points = unpack(zeros, bits).T  # (O, G)
        points = (points + 1) & (2**bits - 1) if less_one else points
    affine(reader, f"{owner}.weight", codes.T, bits, scales.T, points, grouping)


def _all_are(words: mx.array, bits: int, number: int) -> bool:
    """Whether each number in the words is this one."""
    run = mx.array(repeated(number, bits), mx.uint32)
    return bool((words.view(mx.uint32).reshape(-1, run.size) == run).all().item())


def read_awq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """AWQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor."""
    for key in ("version", "format"):
        choice(settings, key, ("gemm",), "gemm")
    bits = settings.get("bits", settings.get("w_bit", AWQ_BITS))
    if bits != AWQ_BITS:
        raise refused(settings, f"awq: bits {bits!r} cannot be loaded; known: {AWQ_BITS}")
    reader = FormatReader(tensors, dtype)
    for owner in reader.owners(".qweight"):
        _awq_matrix(reader, owner, zero_point=bool(settings.get("zero_point", True)))
    return reader.result()


def _awq_matrix(reader: FormatReader, owner: str, zero_point: bool) -> None:
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    scales = reader.need(f"{owner}.scales", name)
    zeros = reader.need(f"{owner}.qzeros", name) if zero_point else reader.take(f"{owner}.qzeros")
    parts = {name: codes, f"{owner}.scales": scales, f"{owner}.qzeros": zeros}
    if codes.ndim != 2 or scales.ndim != 2 or not is_words(codes) or not is_float(scales):
        raise mismatched_parts(parts)
    (inputs, words), (groups, outputs) = codes.shape, scales.shape
    if outputs != AWQ_EACH * words or inputs % groups or inputs % AWQ_EACH:
        raise mismatched_parts(parts)
    if zeros is not None and (zeros.shape != (groups, words) or not is_words(zeros)):
        raise mismatched_parts(parts)
    points = 2 ** (AWQ_BITS - 1) if zeros is None else unpack(zeros, AWQ_BITS, AWQ_ORDER).T  # (O, G)
    columns = transpose_nibbles(codes)  # each (W, O/8): every eighth output's words
    rows = mx.stack([columns[index].T for index in AWQ_ORDER], axis=1).flatten(0, 1)  # (O, W)
    affine(reader, f"{owner}.weight", rows, AWQ_BITS, scales.T, points, consecutive(inputs, inputs // groups))
