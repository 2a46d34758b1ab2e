"""The formats of compressed-tensors (https://github.com/vllm-project/compressed-tensors), recognised by their tensors.

`weight_packed` is of words, whole numbers (`formats.integers`), or of bytes, two FP4 each; `weight` is of E4M3 or of
8-bit whole numbers. `weight_scale` multiplies, `weight_global_scale` divides. What the config's groups and `ignore`
say of a matrix shows in its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.floats import fp4, fp8
from zoo.checkpoint.formats.format_reader import FormatReader
from zoo.checkpoint.formats.fp8 import block_sizes
from zoo.checkpoint.formats.integers import integers
from zoo.checkpoint.quantization_settings import QuantizationSettings, choice, origin_of, refused
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

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
    sizes = [size for each in weights for size in block_sizes(settings, "block_structure", each)]
    reader = FormatReader(tensors, dtype)
    reader.drop(*UNUSED)
    for owner in reader.owners(".weight_packed"):
        part = f"{owner}.weight_packed"
        if reader.kind(part) == "U8":
            divisor = reader.take(f"{owner}.weight_global_scale")
            multiplier = None if divisor is None else 1 / divisor.astype(mx.float32)
            fp4(reader, f"{owner}.weight", part, f"{owner}.weight_scale", multiplier)
    integers(reader, weights)
    for owner in reader.owners(".weight_scale"):
        name = f"{owner}.weight"
        if reader.kind(name) != "F8_E4M3":
            raise CheckpointError(f"{owner}.weight_scale: no {name} of F8_E4M3 or I8 beside it")
        fp8(reader, name, f"{owner}.weight_scale", sizes)
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
