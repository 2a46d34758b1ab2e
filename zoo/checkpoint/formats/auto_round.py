"""AutoRound's folders (Cheng et al., 2023; https://github.com/intel/auto-round): other formats' packings by other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.formats.compressed_tensors import read_compressed_tensors
from zoo.checkpoint.formats.integers import read_awq, read_gptq
from zoo.checkpoint.quantization_settings import QuantizationSettings, choice, origin_of, refused
from zoo.checkpoint.safetensors import Tensors

INTEGERS, FLOATS = ("int", "int_sym", "int_asym"), ("mx_fp", "mx_fp_rceil", "nv_fp", "nv_fp4_with_static_gs")
# What a packing's name begins with, and the layout: GPTQ's stores zero points less one, or as they are.
LAYOUTS = {
    "llm_compressor": "compressed-tensors",
    "auto_awq": "awq",
    "awq": "awq",
    "gptqmodel": "gptq_v2",
    "auto_gptq": "gptq",
    "gptq": "gptq",
    **dict.fromkeys(("exllama", "triton", "torch"), "gptq_v2"),
}


def read_auto_round(tensors: Tensors, settings: Mapping[str, Any], dtype: mx.Dtype | None = None) -> Tensors:
    """The matrices by `packing_format`, or `backend` in older folders: "auto_round:auto_gptq" and so on.

    "auto_round" alone is GPTQ's with zero points as they are. What `extra_config` gives single matrices shows in their tensors.
    ConfigError for another packing or kind of number, and for rotated weights.
    """
    for key in settings:
        if settings[key] and ("rotation" in key or "spinquant" in key):
            raise refused(settings, f"auto-round: a {key} cannot be loaded")
    kind = choice(settings, "data_type", INTEGERS + FLOATS, "int")
    packing = settings.get("packing_format") or settings.get("backend") or "auto_round:auto_gptq"
    library, _, named = str(packing).lower().partition(":")
    layout = next((layout for name, layout in LAYOUTS.items() if named.startswith(name)), None)
    layout = layout if named else "gptq_v2"
    known = library in ("auto_round", "autoround") and (kind in FLOATS) == (layout == "compressed-tensors")
    if layout is None or not known:
        names = "auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, auto_round:llm_compressor"
        why = f"packing_format {packing!r} of {kind} cannot be loaded; known: {names}"
        raise refused(settings, f"auto-round: {why}")
    if layout == "compressed-tensors":
        return read_compressed_tensors(tensors, QuantizationSettings({}, origin_of(settings)), dtype)
    layouts = QuantizationSettings({**settings, "checkpoint_format": layout}, origin_of(settings))
    if layout == "awq":
        layouts["checkpoint_format"] = "gemm"
        return read_awq(tensors, layouts, dtype)
    return read_gptq(tensors, layouts, dtype)
