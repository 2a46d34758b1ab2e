"""The formats of compressed-tensors (https://github.com/vllm-project/compressed-tensors), recognised by their tensors.

`weight_packed` is of words, whole numbers, or of bytes, two FP4 each; `weight` is of E4M3 or of 8-bit whole numbers.
`weight_scale` multiplies, `weight_global_scale` divides. What the config's groups and `ignore` say of a matrix shows in
its tensors.

Whole numbers, packed: `weight_packed` (O, W) along the inputs, each 2^(bits − 1) more than it means, `weight_shape` the
two sizes, `weight_zero_point` (…, G) packed so along the outputs. Naive: `weight` (O, I) and `weight_zero_point` of 8
signed bits. `weight_scale` (O, G), (O, 1) or one for all; `weight_g_idx` (I,) each input's group, or −1 where it says
nothing. number = scale · (code − zero).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.floats import block_sizes, fp4, fp8
from zoo.checkpoint.formats.integers import affine, in_turn, scattered, signed_bytes, unpack
from zoo.checkpoint.quantization_settings import QuantizationSettings, choice, origin_of, refused
from zoo.checkpoint.quantized_matrix import WORD, is_float
from zoo.checkpoint.quantized_tensors import FormatReader, is_words, mismatched_parts
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

BYTE = 8  # bits
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
    "dense",
)
# Of activations and of cached keys and values.
UNUSED = tuple(
    f"{of}_{what}" for of in ("input", "output", "q", "k", "v") for what in ("scale", "zero_point")
)
UNUSED += ("input_global_scale", "q_global_scale", "k_global_scale", "v_global_scale")


def read_compressed_tensors(
    tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None
) -> Tensors:
    """Its matrices, packed where MLX can hold them. ConfigError for another format; CheckpointError naming a tensor."""
    weights = _weights(settings)
    named = [each.get("block_structure") for each in weights]
    sizes = [size for value in named for size in block_sizes(settings, "block_structure", value)]
    reader = FormatReader(tensors, dtype)
    reader.drop(*UNUSED)
    for owner in reader.owners(".weight_packed"):
        part = f"{owner}.weight_packed"
        if reader.kind(part) == "U8":
            divisor = reader.take(f"{owner}.weight_global_scale")
            multiplier = None if divisor is None else 1 / divisor.astype(mx.float32)
            fp4(reader, f"{owner}.weight", part, f"{owner}.weight_scale", multiplier)
        else:
            _integers(reader, owner, "weight_packed", weights)
    for owner in reader.owners(".weight_scale"):
        name = f"{owner}.weight"
        kind = reader.kind(name)
        if kind == "I8":
            _integers(reader, owner, "weight", weights)
        elif kind == "F8_E4M3":
            fp8(reader, name, f"{owner}.weight_scale", sizes)
        else:
            raise CheckpointError(f"{owner}.weight_scale: no {name} of F8_E4M3 or I8 beside it")
    return reader.result()


def _weights(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The weight settings of the config's groups; ConfigError for settings that are not implemented."""
    named = settings.get("config_groups") or {}
    if not isinstance(named, Mapping) or not all(isinstance(group, Mapping) for group in named.values()):
        raise refused(settings, "compressed-tensors: config_groups: expected objects")
    for group in (settings, *named.values()):
        given = QuantizationSettings({**group, "quant_method": "compressed-tensors"}, origin_of(settings))
        choice(given, "format", FORMATS, "dense")
    sparsity = settings.get("sparsity_config") or {}
    if not isinstance(sparsity, Mapping) or sparsity.get("format", "dense") != "dense":
        raise refused(settings, f"compressed-tensors: sparsity_config {sparsity!r} cannot be loaded")
    if settings.get("transform_config"):
        raise refused(settings, "compressed-tensors: a transform_config cannot be loaded")
    weights = [group.get("weights") or {} for group in named.values()]
    return [each for each in weights if isinstance(each, Mapping)]


def _integers(reader: FormatReader, owner: str, part: str, weights: Sequence[Mapping[str, Any]]) -> None:
    """Add to the reading the whole numbers of `owner`, "weight_packed" or naive ones in "weight".

    `weight_shape` and `weight_g_idx` are read here. CheckpointError naming tensors that do not fit each other.
    """
    name = f"{owner}.{part}"
    codes, packed = reader.need(name, name), part == "weight_packed"
    scales = reader.need(f"{owner}.weight_scale", name)
    zeros, index = reader.take(f"{owner}.weight_zero_point"), reader.take(f"{owner}.weight_g_idx")
    shape = reader.need(f"{owner}.weight_shape", name) if packed else None
    others = {"scale": scales, "zero_point": zeros, "g_idx": index, "shape": shape}
    parts = {name: codes, **{f"{owner}.weight_{rest}": array for rest, array in others.items()}}
    typed = (is_words(codes) if packed else codes.dtype == mx.int8) and is_float(scales)
    whole = all(mx.issubdtype(array.dtype, mx.integer) for array in (shape, index) if array is not None)
    sized = (shape is None or shape.size == 2) and (index is None or index.ndim == 1)
    if codes.ndim != 2 or not (typed and whole and sized):
        raise mismatched_parts(parts)
    (outputs, inputs), bits = codes.shape, BYTE
    if shape is not None:
        rows, inputs = shape.flatten().tolist()
        # Rows of few numbers leave open how many bits each has; the config then says it.
        known = [bits for bits in range(1, BYTE + 1) if -(-inputs * bits // WORD) == codes.shape[1]]
        if rows != outputs or not known:
            raise mismatched_parts(parts)
        named = [each.get("num_bits") for each in weights]
        bits = next((bits for bits in known if bits in named), known[0])
    groups = scales.shape[-1] if scales.ndim == 2 else 1
    fits = scales.size in (1, outputs * groups) and groups <= inputs
    if not fits or (index is not None and index.size != inputs):
        raise mismatched_parts(parts)
    if index is None or index.max().item() < 0:
        grouping = in_turn(inputs, groups, (each.get("group_size") for each in weights))
    else:
        grouping = scattered(f"{owner}.weight_g_idx", index, groups)
    scales = mx.broadcast_to(scales.reshape(-1, groups), (outputs, groups))
    points = 2 ** (bits - 1) if zeros is None else _zeros(zeros, outputs, groups, bits)
    if grouping is None or points is None:
        raise mismatched_parts(parts)
    if not packed:
        codes, _ = signed_bytes(codes)
    affine(reader, f"{owner}.weight", codes, bits, scales, points, grouping)


def _zeros(zeros: mx.array, outputs: int, groups: int, bits: int) -> mx.array | None:
    """The zero points plus 2^(bits − 1), (O, G); None where they are not of such a matrix."""
    if is_words(zeros) and zeros.shape == (-(-outputs * bits // WORD), groups):
        return unpack(zeros.T, bits)[:, :outputs].T
    if zeros.dtype != mx.int8 or zeros.size not in (1, outputs * groups):
        return None
    raised = zeros.astype(mx.int16) + 2 ** (bits - 1)
    return mx.broadcast_to(raised.reshape(-1, 1 if zeros.size == 1 else groups), (outputs, groups))
