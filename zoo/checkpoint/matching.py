"""Whether a checkpoint's tensors are a model's parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantized_matrix import QuantizedMatrix
from zoo.errors import CheckpointError


def parameters_match(wanted: Mapping[str, Any], found: Mapping[str, Any], left: Collection[str]) -> bool:
    """Whether the parameters `found` are those `wanted`, floats of the same shapes, with no tensor left."""
    return (
        not left
        and wanted.keys() == found.keys()
        and all(parameter_matches(wanted[path], found[path]) for path in wanted)
    )


def parameter_matches(wanted: mx.array, found: Any) -> bool:
    """Whether a parameter found is of the shape wanted, and floats; a packed one in some quantization that its rows allow."""
    if isinstance(found, QuantizedMatrix) and not found.swapped and len(found.shape) == wanted.ndim:
        try:
            found = found.resolved(wanted.shape[-1])
        except CheckpointError:
            return False
    return tuple(wanted.shape) == tuple(found.shape) and is_float(found)


def is_float(array: Any) -> bool:
    """Whether an array or a packed matrix is of floats."""
    return mx.issubdtype(array.dtype, mx.floating)
