"""A rank's share of a checkpoint's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from zoo.checkpoint.quantized_matrix import QuantizedMatrix, join
from zoo.recipe.division import Cut, Division


def packed_group(parameters: Mapping[str, Any], division: Division) -> int:
    """The most inputs that share a scale in those packed matrices whose inputs a division cuts; 1 where none is packed."""
    cut = (parameters[path] for path, cut in division.cuts.items() if cut.axis == -1 and path in parameters)
    packed = (tensor for tensor in cut if isinstance(tensor, QuantizedMatrix))
    return max((tensor.quantization.group_size for tensor in packed), default=1)


def divided_parameters(parameters: Mapping[str, Any], division: Division, rank: int) -> dict[str, Any]:
    """A rank's share of a whole model's parameters, by path. Nothing is read; parameters of other ranks' layers are left out."""
    absent = tuple(f"{path}." for path in division.absent)
    found = {
        path: cut_of(tensor, division.cuts[path]) if path in division.cuts else tensor
        for path, tensor in parameters.items()
        if not path.startswith(absent)
    }
    if rank:
        found |= {p: mx.zeros(found[p].shape, found[p].dtype) for p in division.once if p in found}
    return found


def cut_of(tensor: Any, cut: Cut) -> Any:
    """The ranges of a parameter that a cut names. The parameter may be packed."""
    axis = cut.axis % tensor.ndim
    whole = (slice(None),) * axis
    rest = (slice(None),) * (tensor.ndim - axis - 1)
    parts = [tensor[(*whole, slice(first, last), *rest)] for first, last in cut.ranges]
    return parts[0] if len(parts) == 1 else join(parts, axis)
