"""NVFP4 and FP8 as NVIDIA's Model Optimizer writes them (https://github.com/NVIDIA/Model-Optimizer).

NVFP4: `weight` (O, I/2) of two FP4 a byte, `weight_scale` (O, I/16) of E4M3, `weight_scale_2`, which multiplies all.
FP8: `weight` (O, I) of E4M3, `weight_scale`, which multiplies all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.floats import fp4, fp8
from zoo.checkpoint.formats.format_reader import FormatReader
from zoo.checkpoint.quantization_settings import QuantizationSettings, choice, origin_of, refused
from zoo.checkpoint.safetensors import Tensors
from zoo.errors import CheckpointError

ALGORITHMS = ("nvfp4", "w4a16_nvfp4", "fp8", "mixed_precision")
# Of activations and of cached keys and values.
UNUSED = ("input_scale", "output_scale", "k_scale", "v_scale")


def read_modelopt(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """Its matrices, packed. ConfigError for another algorithm; CheckpointError naming a tensor."""
    nested = settings.get("quantization", {})  # as in hf_quant_config.json
    if not isinstance(nested, Mapping):
        raise refused(settings, f"modelopt: quantization {nested!r}: expected an object")
    choice(
        QuantizationSettings({**settings, **nested}, origin_of(settings)), "quant_algo", ALGORITHMS, "missing"
    )
    reader = FormatReader(tensors, dtype)
    reader.drop(*UNUSED)
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
