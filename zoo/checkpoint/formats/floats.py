"""Small floats with scales, as MLX's mxfp4, nvfp4 and mxfp8 quantizations where they are such, else unpacked.

FP4 is E2M1, FP8 is E4M3, E8M0 is a power of two in one byte, 2^(byte − 127) (OCP Microscaling Formats, version 1.0).
`read_fp8` reads FP8 with a scale for each block, `read_modelopt` what NVIDIA's Model Optimizer writes.

Axes: … stacked matrices, O outputs, I inputs, P and Q blocks of outputs and of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantization_settings import FLOAT_MODES, QuantizationSettings, choice, origin_of, refused
from zoo.checkpoint.quantized_matrix import WORD, QuantizationSpec, QuantizedMatrix, is_float
from zoo.checkpoint.quantized_tensors import FormatReader, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

EXPONENTS = ("U8", "F8_E8M0")  # what headers call bytes of E8M0
ONE = 127  # the byte that is 1 in E8M0
GROUP = 32  # inputs that share a scale in the MX formats
SCALE = "_scale_inv"  # ends the names of most of `read_fp8`'s scales
MODELOPT_ALGORITHMS = ("nvfp4", "w4a16_nvfp4", "fp8", "mixed_precision")
# Of activations and of cached keys and values.
MODELOPT_UNUSED = ("input_scale", "output_scale", "k_scale", "v_scale")
UNUSED_BY_FP8 = (*MODELOPT_UNUSED, "activation_scale", "input_scale_ub", "kv_scale")


def fp4(reader: FormatReader, name: str, part: str, scale: str, multiplier: mx.array | None = None) -> None:
    """Add to the reading the matrix `name` of FP4: `part` (…, O, I/2) holds two a byte, the low half first.

    The type of its `scale` (…, O, G) distinguishes MXFP4 from NVFP4. `multiplier` is NVFP4's second scale, one a matrix.
    """
    kind = reader.kind(scale)
    codes, scales = reader.need(part, part), reader.need(scale, part)
    mode = "nvfp4" if kind == "F8_E4M3" else "mxfp4"
    bits, group = FLOAT_MODES[mode]
    inputs = codes.shape[-1] * 2 if codes.ndim > 1 else 0
    if kind not in ("F8_E4M3", *EXPONENTS) or scales.shape != (*codes.shape[:-1], inputs // group):
        raise mismatched_parts({part: codes, scale: scales})
    if multiplier is not None:
        outer = codes.shape[:-2]
        if multiplier.size != math.prod(outer) or not is_float(multiplier):
            raise mismatched_parts({part: codes, f"{name}'s second scale": multiplier})
        multiplier = multiplier.astype(mx.float32).reshape(*outer, 1)
    _packed(reader, name, codes, scales, QuantizationSpec(bits, group, mode), multiplier)


def fp8(
    reader: FormatReader,
    name: str,
    scale: str,
    sizes: Sequence[tuple[int, int]] = (),
    powers: bool = False,
) -> None:
    """Replace the matrix `name` of FP8, (…, O, I), by itself times its `scale`.

    One scale for all or for each output becomes the `global_scale` of an MXFP8 matrix whose own scales are 1. Powers
    of two for blocks of whole groups are MXFP8 itself: bytes of E8M0, or floats where `powers` says so. Others,
    (…, P, Q), are unpacked; their blocks have one of the `sizes` (outputs, inputs) where a last one is smaller.
    """
    exponents = reader.kind(scale) in EXPONENTS
    codes, scales = reader.need(name, scale), reader.need(scale, name)
    parts = {name: codes, scale: scales}
    if codes.ndim < 2 or codes.dtype != mx.uint8 or not (exponents or is_float(scales)):
        raise mismatched_parts(parts)
    *outer, outputs, inputs = codes.shape
    shape = _multiplier_shape(codes, scales)
    if shape is not None and not exponents:
        multiplier = scales.astype(mx.float32).reshape(shape)
        if inputs % GROUP:
            reader.give(name, mx.from_fp8(codes, mx.float32) * multiplier[..., None])
            return
        ones = mx.full((*outer, outputs, inputs // GROUP), ONE, dtype=mx.uint8)
        _packed(reader, name, codes, ones, QuantizationSpec(8, GROUP, "mxfp8"), multiplier)
        return
    block = _block(codes, scales, sizes)
    if block is None:
        raise mismatched_parts(parts)
    rows, columns = block
    if inputs % GROUP == 0 and columns % GROUP == 0 and (exponents or powers):
        grid = scales if exponents else exponents_of(scales)
        grid = mx.repeat(grid, columns // GROUP, axis=-1)[..., : inputs // GROUP]
        grid = mx.repeat(grid, rows, axis=-2)[..., :outputs, :]
        _packed(reader, name, codes, grid, QuantizationSpec(8, GROUP, "mxfp8"))
        return
    factors = powers_of(scales) if exponents else scales.astype(mx.float32)
    reader.give(name, blockwise(mx.from_fp8(codes, mx.float32), factors, rows, columns))


def _multiplier_shape(codes: mx.array, scales: mx.array) -> tuple[int, ...] | None:
    """The shape of a global scale, where there is one scale for all, for each stacked matrix or for each output."""
    *outer, outputs, _ = codes.shape
    if scales.size == math.prod(outer):
        return (*outer, 1)
    if scales.shape in ((*outer, outputs), (*outer, outputs, 1)):
        return (*outer, outputs)
    return (1,) if scales.size == 1 else None


def _block(codes: mx.array, scales: mx.array, sizes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The size of a block that gives as many blocks as there are scales: one of those named, else any.

    Groups of inputs, with a scale for each output, have no block's size.
    """
    if scales.ndim != codes.ndim or scales.shape[:-2] != codes.shape[:-2]:
        return None
    (outputs, inputs), (down, across) = codes.shape[-2:], scales.shape[-2:]
    for rows, columns in sizes:
        if (down, across) == (-(-outputs // rows), -(-inputs // columns)):
            return rows, columns
    if outputs % down or inputs % across or (sizes and down != outputs):
        return None
    return outputs // down, inputs // across


def blockwise(numbers: mx.array, factors: mx.array, rows: int, columns: int) -> mx.array:
    """Each number times its block's factor: (…, O, I) and (…, P, Q), where the last blocks may be smaller."""
    *outer, outputs, inputs = numbers.shape
    factors = mx.repeat(factors, columns, axis=-1)[..., :inputs]  # (…, P, I): a row for all of a block's
    whole = outputs // rows
    split = numbers[..., : whole * rows, :].reshape(*outer, whole, rows, inputs)
    product = (split * factors[..., :whole, None, :]).reshape(*outer, whole * rows, inputs)
    if whole * rows == outputs:
        return product
    return mx.concatenate([product, numbers[..., whole * rows :, :] * factors[..., whole:, :]], axis=-2)


def powers_of(exponents: mx.array) -> mx.array:
    """Bytes of E8M0 as float32."""
    normal = (exponents.astype(mx.uint32) << 23).view(mx.float32)
    smallest = mx.array(2.0**-127)  # the one power that float32 writes without a leading one
    return mx.where(exponents == 0, smallest, mx.where(exponents == 255, mx.nan, normal))


def exponents_of(powers: mx.array) -> mx.array:
    """Powers of two as bytes of E8M0."""
    return (powers.astype(mx.float32).view(mx.uint32) >> 23).astype(mx.uint8)


def are_powers(scales: mx.array) -> mx.array:
    """Whether all are powers of two that both E8M0 and a normal float32 hold."""
    words = scales.astype(mx.float32).view(mx.uint32)
    exponents = words >> 23  # a negative one's is past 255
    return ((words & 0x7FFFFF) == 0).all() & (exponents.min() > 0) & (exponents.max() < 255)


def _packed(
    reader: FormatReader,
    name: str,
    codes: mx.array,
    scales: mx.array,
    spec: QuantizationSpec,
    multiplier: mx.array | None = None,
) -> None:
    if codes.dtype != mx.uint8 or codes.shape[-1] % (WORD // 8):
        raise mismatched_parts({name: codes})
    words = codes.view(mx.uint32)
    matrix = QuantizedMatrix(name, words, scales, None, spec, multiplier, floats=reader.floats, certain=True)
    reader.give(name, matrix)


def read_fp8(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """FP8 matrices, packed where their scales allow it. ConfigError for other block sizes; CheckpointError naming a tensor.

    As DeepSeek-V3 was released and transformers' fine-grained FP8 writes it: a matrix (O, I) is E4M3; `weight_scale_inv`
    (P, Q) multiplies its blocks of `weight_block_size`, 128 × 128 as released (DeepSeek-V3 technical report, 2024,
    section 3.3), or all of it. AutoFP8 (https://github.com/neuralmagic/AutoFP8) and FBGEMM name it `weight_scale`: one number,
    and one for each output.
    """
    sizes = block_sizes(settings, "weight_block_size", settings.get("weight_block_size"))
    reader = FormatReader(tensors, dtype)
    reader.drop(*UNUSED_BY_FP8)
    for name in reader.owners(SCALE):  # of matrices: stacked experts have no ".weight" of their own
        if reader.kind(name) != "F8_E4M3":
            raise CheckpointError(f"{name}{SCALE}: no {name} of F8_E4M3 beside it")
        scale = reader.arrays[name + SCALE]
        # The config promises powers of two of all; the scales are read for it.
        promised = settings.get("scale_fmt") == "ue8m0" and is_float(scale) and scale.size > 0
        fp8(reader, name, name + SCALE, sizes, promised and bool(are_powers(scale).item()))
    for owner in reader.owners(".weight_scale"):
        if reader.kind(f"{owner}.weight") != "F8_E4M3":
            raise CheckpointError(f"{owner}.weight_scale: no {owner}.weight of F8_E4M3 beside it")
        fp8(reader, f"{owner}.weight", f"{owner}.weight_scale", sizes)
    return reader.result()


def block_sizes(settings: Mapping[str, Any], key: str, value: object) -> list[tuple[int, int]]:
    """The size of a block, outputs and inputs, that `key` of the settings says, none for null; ConfigError otherwise."""
    if value is None:
        return []
    if isinstance(value, list) and len(value) == 2:
        rows, columns = value
        if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return [(rows, columns)]
    raise refused(settings, f"{key} {value!r}: expected two sizes")


def read_modelopt(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """Matrices as Model Optimizer writes them (https://github.com/NVIDIA/Model-Optimizer), packed.

    NVFP4: `weight` (O, I/2) of two FP4 a byte, `weight_scale` (O, I/16) of E4M3, `weight_scale_2`, which multiplies all.
    FP8: `weight` (O, I) of E4M3, `weight_scale`, which multiplies all. ConfigError for another algorithm; CheckpointError
    naming a tensor.
    """
    nested = settings.get("quantization", {})  # as in hf_quant_config.json
    if not isinstance(nested, Mapping):
        raise refused(settings, f"modelopt: quantization {nested!r}: expected an object")
    given = QuantizationSettings({**settings, **nested}, origin_of(settings))
    choice(given, "quant_algo", MODELOPT_ALGORITHMS, "missing")
    reader = FormatReader(tensors, dtype)
    reader.drop(*MODELOPT_UNUSED)
    for owner in reader.owners(".weight_scale"):
        name, scale, second = f"{owner}.weight", f"{owner}.weight_scale", f"{owner}.weight_scale_2"
        kind = reader.kind(name)
        if kind == "F8_E4M3":
            fp8(reader, name, scale)
        elif kind == "U8":
            fp4(reader, name, name, scale, reader.need(second, name))
        else:
            raise CheckpointError(f"{scale}: no {name} of U8 or F8_E4M3 beside it")
    return reader.result()
