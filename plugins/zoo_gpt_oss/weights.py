"""The weight rule of gpt-oss's MXFP4 experts. Imports no mlx at module level.

Axes: E experts, D model width, F hidden, I inputs of a matrix, O its outputs, G groups of 32 inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.architecture import Rule
from zoo.errors import CheckpointError
from zoo.weights import Join, Tensors, matches

GROUP = 32  # numbers that share a scale in MXFP4


@dataclass(frozen=True)
class Gather(Rule):
    """MXFP4 as released, under the name and in the orientation of the unpacked checkpoint, (E, in, out).

    `{name}_blocks` (E, O, G, 16) holds two 4-bit floats a byte, the low half first; `{name}_scales` (E, O, G) the
    exponents, 127 more than they mean (OCP Microscaling Formats, version 1.0, sections 5.3 and 6.3). Later rules
    take the result, and it is not written back in this form.
    """

    source: str

    def forward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        for name, _ in matches(self.source + "_blocks", source):
            whole = name.removesuffix("_blocks")
            if whole + "_scales" in source:
                source[whole] = gathered(name, source.pop(name), source.pop(whole + "_scales"))

    def backward(self, source: Tensors, target: Tensors, recipe: Any, join: Join) -> None:
        pass


def gathered(name: str, blocks: Any, scales: Any) -> Any:
    """The matrices, packed, shown as (E, I, O); CheckpointError when the two do not belong together."""
    import mlx.core as mx

    from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix

    fits = len(blocks.shape) == 4 and blocks.shape[-1] == GROUP // 2 and blocks.shape[:-1] == scales.shape
    if not fits or (blocks.dtype, scales.dtype) != (mx.uint8, mx.uint8):
        shapes = f"{tuple(blocks.shape)} {blocks.dtype} and {tuple(scales.shape)} {scales.dtype}"
        raise CheckpointError(f"{name}: no MXFP4 blocks and scales: {shapes}")
    packed = blocks.flatten(-2).view(mx.uint32)  # (E, O, 4G): eight numbers each
    return QuantizedMatrix(name, packed, scales, None, QuantizationSpec(4, GROUP, "mxfp4"), swapped=True)
