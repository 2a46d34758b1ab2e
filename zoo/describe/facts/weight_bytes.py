"""The bytes of a model's weights in each format, by the rule of `zoo convert`. Imports no mlx.

A matrix is packed where its layer has a quantized form and its rows divide into groups; a router's scores get eight bits;
all else stays whole. An architecture's own `quantizes` may change what a matrix gets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from zoo.checkpoint.quantization_settings import AFFINE_BITS, FLOAT_MODES, ROUTER_BITS, ROUTER_GROUP, ROUTERS
from zoo.describe.facts.stacks import is_opaque, with_widths
from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model

FLOATS = {"float32": 4, "bfloat16": 2, "float16": 2}
FORMATS = ("float32", "bfloat16", "8", "6", "4", "mxfp4")  # those that a sheet has
NAMES = (*FLOATS, *map(str, AFFINE_BITS[1:]), *FLOAT_MODES)
GROUP = 64  # inputs that share a scale, in affine quantizations
WHOLE = 2  # bytes of a number that is not packed, of a scale and of a bias


@frozen()
class Format(Frozen):
    """How weights are stored: `bits` a number, and a scale of `scale_bytes` for each `group` inputs; 0: they are whole."""

    name: str
    bits: int
    group: int = 0
    scale_bytes: int = 0

    def bytes(self, numbers: int) -> int:
        """The bytes of so many numbers whose rows divide into groups."""
        scales = numbers // self.group * self.scale_bytes if self.group else 0
        return numbers * self.bits // 8 + scales


ROUTER = Format("router", ROUTER_BITS, ROUTER_GROUP, 2 * WHOLE)


def format_of(name: str) -> Format:
    """The format of that name: a dtype, bits of an affine quantization ("4") or a mode ("mxfp4"); ZooError for others."""
    if name in FLOATS:
        return Format(name, 8 * FLOATS[name])
    if name in FLOAT_MODES:
        bits, group = FLOAT_MODES[name]
        return Format(name, bits, group, 1)
    if name not in NAMES:
        raise ZooError(f"`quantize` {name}: not one of {', '.join(NAMES)}")
    return Format(name, int(name), GROUP, 2 * WHOLE)


@frozen()
class Weights(Frozen):
    """The numbers of a model by how they are packed.

    `matrices` are those that may be packed, as (path, inputs, numbers); `whole` counts all other numbers. `quantizes` is
    the architecture's own rule for them, where it has one.
    """

    matrices: tuple[tuple[str, int, int], ...]
    whole: int
    quantizes: Callable[[str, Any], Any] | None = None

    def bytes(self, name: str) -> int:
        """Their bytes in a format."""
        chosen = format_of(name)
        if not chosen.group:
            return chosen.bytes(self.whole + sum(numbers for _, _, numbers in self.matrices))
        return self.whole * WHOLE + sum(self._packed(*matrix, chosen) for matrix in self.matrices)

    def _packed(self, path: str, inputs: int, numbers: int, chosen: Format) -> int:
        """The bytes of one matrix."""
        chosen = ROUTER if _is_router(path) else chosen
        found = chosen if self.quantizes is None else self._asked(path, chosen)
        return numbers * WHOLE if found is None or inputs % found.group else found.bytes(numbers)

    def _asked(self, path: str, chosen: Format) -> Format | None:
        """The format that `quantizes` gives a matrix; None where it stays whole."""
        from zoo.checkpoint.quantized_matrix import QuantizationSpec

        mode = chosen.name if chosen.name in FLOAT_MODES else "affine"
        assert self.quantizes is not None
        found = self.quantizes(path, QuantizationSpec(chosen.bits, chosen.group, mode))
        if found is None:
            return None
        scale_bytes = 2 * WHOLE if found.mode == "affine" else 1
        return Format(path, found.bits, found.group_size, scale_bytes)

    def to_json(self) -> dict[str, Any]:
        """How many numbers are in rows of so many inputs, as [inputs, numbers], those of routers apart.

        With `bytes` by format where `quantizes` has its own rule.
        """
        rows, routers = Counter[int](), Counter[int]()
        for path, inputs, numbers in self.matrices:
            (routers if _is_router(path) else rows)[inputs] += numbers
        plain, routed = (sorted(map(list, counts.items())) for counts in (rows, routers))
        found: dict[str, Any] = {"rows": plain, "router_rows": routed, "whole": self.whole}
        if self.quantizes is not None:
            found["bytes"] = {name: self.bytes(name) for name in NAMES}
        return found


def _is_router(path: str) -> bool:
    return path.endswith(f".{ROUTERS}")


def weights_of(recipe: Model, quantizes: Callable[[str, Any], Any] | None = None) -> Weights | None:
    """The numbers of a recipe by how they are packed; None where its matrices are not known.

    `quantizes` is that of its architecture.
    """
    if is_opaque(recipe):
        return None
    matrices = tuple(
        (f"{path}.{matrix.name}", matrix.inputs, matrix.numbers)
        for path, spec, width in with_widths(recipe, recipe.dim)
        for matrix in spec.matrices(width)
        if matrix.packs
    )
    whole = recipe.parameters(recipe.dim) - sum(numbers for _, _, numbers in matrices)
    return Weights(matrices, whole, quantizes)
