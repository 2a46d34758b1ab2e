"""GPTQ, as AutoGPTQ and GPTQModel write it (Frantar et al., 2022; https://github.com/AutoGPTQ/AutoGPTQ).

`qweight` (I · bits / 32, O) packs along the inputs, `qzeros` (G, O · bits / 32) along the outputs; `scales` (G, O);
`g_idx` (I,) says which group each input is in. number = scale · (code − zero). The first `checkpoint_format`, "gptq",
stores each zero point less one, modulo 2^bits; "gptq_v2" stores it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.affine import Grouping, affine, in_turn, scattered
from zoo.checkpoint.formats.format_reader import FormatReader, is_float, is_words, mismatched_parts
from zoo.checkpoint.formats.words import repeated, unpack
from zoo.checkpoint.quantization_settings import choice
from zoo.checkpoint.quantized_matrix import WORD
from zoo.checkpoint.safetensors import Tensors

BITS = (2, 3, 4, 8)


@dataclass(frozen=True)
class GPTQMatrix:
    """The parts of one matrix, whose shapes and types fit each other."""

    codes: mx.array
    scales: mx.array
    zeros: mx.array
    index: mx.array | None
    bits: int

    @property
    def inputs(self) -> int:
        return self.codes.shape[0] * WORD // self.bits

    def all_zeros_are(self, number: int) -> mx.array:
        """Whether every zero point is stored as this number."""
        run = repeated(number, self.bits)
        words = self.zeros.view(mx.uint32)
        row = mx.array(run, mx.uint32)[mx.arange(words.shape[1]) % len(run)]
        return (words == row).all()


def read_gptq(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """GPTQ matrices packed as MLX holds them. ConfigError for another layout; CheckpointError naming a tensor."""
    older = "marlin" if settings.get("is_marlin_format") else settings.get("format") or "gptq"
    layout = choice(settings, "checkpoint_format", ("gptq", "gptq_v2"), older)
    reader = FormatReader(tensors, dtype)
    matrices = {owner: _matrix(reader, owner) for owner in reader.owners(".qweight")}
    groupings = _groupings(matrices, settings.get("group_size"))
    symmetric = _symmetric(matrices) if settings.get("sym", True) else set()
    for owner, matrix in matrices.items():
        zeros: mx.array | int = 2 ** (matrix.bits - 1)
        if owner not in symmetric:
            zeros = unpack(matrix.zeros, matrix.bits).T  # (O, G)
            if layout == "gptq":
                zeros = (zeros + 1) & (2**matrix.bits - 1)
        words, scales = matrix.codes.T, matrix.scales.T
        affine(reader, f"{owner}.weight", words, matrix.bits, scales, zeros, groupings[owner])
    return reader.result()


def _matrix(reader: FormatReader, owner: str) -> GPTQMatrix:
    name = f"{owner}.qweight"
    codes = reader.need(name, name)
    zeros = reader.need(f"{owner}.qzeros", name)
    scales = reader.need(f"{owner}.scales", name)
    index = reader.take(f"{owner}.g_idx")
    parts = {name: codes, f"{owner}.qzeros": zeros, f"{owner}.scales": scales, f"{owner}.g_idx": index}
    if not (codes.ndim == zeros.ndim == scales.ndim == 2) or not is_float(scales):
        raise mismatched_parts(parts)
    bits, rest = divmod(zeros.shape[1] * WORD, codes.shape[1])
    if rest or bits not in BITS or not is_words(codes) or not is_words(zeros):
        raise mismatched_parts(parts)
    inputs, rest = divmod(codes.shape[0] * WORD, bits)
    if rest or scales.shape != (zeros.shape[0], codes.shape[1]):
        raise mismatched_parts(parts)
    if index is not None and (index.shape != (inputs,) or not mx.issubdtype(index.dtype, mx.integer)):
        raise mismatched_parts(parts)
    return GPTQMatrix(codes, scales, zeros, index, bits)


def _groupings(matrices: Mapping[str, GPTQMatrix], size: object) -> dict[str, Grouping]:
    """Each matrix's groups: those of its `g_idx`, else of `size` inputs in turn, else as many as fit the scales."""
    indices = {
        owner: (matrix.index, matrix.scales.shape[0])
        for owner, matrix in matrices.items()
        if matrix.index is not None
    }
    found = scattered({f"{owner}.g_idx": index for owner, index in indices.items()})
    groupings = {}
    for owner, matrix in matrices.items():
        grouping = found.get(f"{owner}.g_idx") or in_turn(matrix.inputs, matrix.scales.shape[0], [size])
        if grouping is None:
            raise mismatched_parts({f"{owner}.qweight": matrix.codes, f"{owner}.scales": matrix.scales})
        groupings[owner] = grouping
    return groupings


def _symmetric(matrices: Mapping[str, GPTQMatrix]) -> set[str]:
    """Those whose zero points all stand in the middle, by either layout, since some writers name the wrong one.

    The zero points are read here: biases of −scale · 2^(bits − 1) are exact in a half.
    """
    middle = {
        owner: [matrix.all_zeros_are(2 ** (matrix.bits - 1) - less) for less in (0, 1)]
        for owner, matrix in matrices.items()
    }
    mx.eval(middle)
    return {owner for owner, found in middle.items() if any(are.item() for are in found)}
