"""Quantizes matrices that are quantized already: chooses their groups, and measures what the second rounding loses.

Rounded numbers lie on a grid of each group. In other groups they are rounded to other grids, which loses more than to round
the floats that they were made from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx

from zoo.checkpoint.open import Opened
from zoo.checkpoint.parameters import Choice, is_packed_as, quantizations
from zoo.checkpoint.quantization_settings import AFFINE_GROUPS
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix, quantize_matrix
from zoo.checkpoint.weight_map import fused
from zoo.errors import warn

SAMPLE, ROWS = 8, 256  # matrices on which the second rounding is measured, and rows of each
NOTABLE = 0.01  # a relative error below which nothing is said; that of 8 bits is smaller


def requantizations(
    opened: Opened,
    asked: QuantizationSpec,
    choices: Sequence[Choice],
    layout: str,
    keep_groups: bool,
) -> dict[str, QuantizationSpec]:
    """The quantization of each parameter, by path, that is packed where `asked` is asked for.

    `keep_groups`: matrices that are packed already keep the size of their groups, where affine quantizations have it.
    Warns of those that are rounded a second time.
    """
    packed = {path: t for path, t in opened.parameters.items() if isinstance(t, QuantizedMatrix)}

    def own_groups(path: str, asked: QuantizationSpec) -> QuantizationSpec:
        size = _group_size(packed.get(f"{path}.weight"))
        return replace(asked, group_size=size) if size and asked.mode == "affine" else asked

    together = fused(opened.checkpoint.architecture.layouts[layout], opened.parameters)
    # The architecture has the last word: it may ask for groups of its own.
    choices = (*choices[:-1], own_groups, *choices[-1:]) if keep_groups else choices
    specs = quantizations(opened.model, opened.parameters, asked, choices, together)
    sizes = {specs[path].group_size for path in packed if path in specs}
    if keep_groups and asked.mode == "affine" and sizes - {asked.group_size}:
        kept = " and ".join(map(str, sorted(sizes)))
        warn(f"packed matrices keep their groups of {kept} weights; `group_size` asks for others")
    _warn_of_second_rounding(opened, packed, specs)
    return specs


def _group_size(matrix: QuantizedMatrix | None) -> int:
    """The size of a packed matrix's groups; 0 for none, and for a size that no affine quantization has."""
    size = matrix.quantization.group_size if matrix is not None else 0
    return size if size in AFFINE_GROUPS else 0


def _warn_of_second_rounding(
    opened: Opened,
    packed: Mapping[str, QuantizedMatrix],
    specs: Mapping[str, QuantizationSpec],
) -> None:
    """Warn of packed matrices that are packed otherwise, with the relative error of some rows of some of them."""
    again = [path for path in packed if path in specs and not is_packed_as(path, packed[path], specs[path])]
    if not again:
        return
    sample = set(again[:: -(-len(again) // SAMPLE)])
    error = total = 0.0
    for placeholders, read in opened.layers():
        some = sample.intersection(placeholders)
        parameters = read() if some else {}
        for path in some:
            rows = (*[slice(0, 1)] * (parameters[path].ndim - 2), slice(0, ROWS))
            numbers = parameters[path][rows].numbers(mx.float32)
            rounded = quantize_matrix(path, numbers, specs[path]).numbers(mx.float32)
            error += mx.square(numbers - rounded).sum().item()
            total += mx.square(numbers).sum().item()
    lost = (error / total) ** 0.5 if total else 0.0
    if lost < NOTABLE:
        return
    kinds = Counter(f"{packed[path].quantization} to {specs[path]}" for path in again)
    named = "; ".join(f"{count} from {kind}" for kind, count in kinds.most_common())
    affine = [path for path in again if specs[path].mode == "affine"]
    sizes = {size for path in affine if (size := _group_size(packed[path])) != specs[path].group_size}
    hint = f"; `group_size` {size} would keep the groups" if len(sizes) == 1 and (size := min(sizes)) else ""
    warn(f"packed matrices are rounded a second time: {named}; relative error (RMS) {lost:.2g}{hint}")
