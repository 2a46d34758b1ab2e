"""The bytes of a model's weights in each format, by the rule of `zoo convert`. Imports no mlx.

A matrix is packed where its layer has a quantized form and its rows divide into groups; a router's scores get eight bits;
all else stays whole. An architecture's own `quantizes` may change what a matrix gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zoo.checkpoint.quantization_modes import AFFINE_BITS, FLOAT_MODES, ROUTER_BITS, ROUTER_GROUP, ROUTERS
from zoo.describe.facts.stacks import is_opaque, with_widths
from zoo.errors import ZooError
from zoo.frozen import Frozen, frozen

FLOATS = {"float32": 4, "bfloat16": 2, "float16": 2}
FORMATS = ("float32", "bfloat16", "8", "6", "4", "mxfp4")  # those that a sheet has
GROUP = 64  # inputs that share a scale, in affine quantizations


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


def format_of(name: str, whole: int = 2) -> Format:
    """The format of that name: a dtype, bits of an affine quantization ("4") or a mode ("mxfp4"); ZooError for others.

    `whole` bytes has each scale and bias of an affine quantization.
    """
    if name in FLOATS:
        return Format(name, 8 * FLOATS[name])
    if name in FLOAT_MODES:
        bits, group = FLOAT_MODES[name]
        return Format(name, bits, group, 1)
    if not name.isdecimal() or int(name) not in AFFINE_BITS[1:]:
        known = ", ".join([*FLOATS, *map(str, AFFINE_BITS[1:]), *FLOAT_MODES])
        raise ZooError(f"`quantize` {name}: not one of {known}")
    return Format(name, int(name), GROUP, 2 * whole)


@frozen()
class Weights(Frozen):
    """The numbers of a model by how they are packed.

    `rows`: how many numbers are in matrices with rows of so many inputs; `routers` the same of those that get eight
    bits; `whole`: all that is never packed. Where the architecture has a `quantizes`, it is asked for each of
    `matrices`, as (path, inputs, numbers).
    """

    rows: tuple[tuple[int, int], ...]
    routers: tuple[tuple[int, int], ...]
    whole: int
    matrices: tuple[tuple[str, int, int], ...] = ()
    quantizes: Callable[[str, Any], Any] | None = None

    def bytes(self, name: str, whole: int = 2) -> int:
        """Their bytes in a format, where what stays whole, and scales, have `whole` bytes a number."""
        chosen = format_of(name, whole)
        if not chosen.group:
            numbers = self.whole + sum(n for _, n in (*self.rows, *self.routers))
            return chosen.bytes(numbers)
        if self.quantizes is not None:
            return sum(self._asked(matrix, chosen, whole) for matrix in self.matrices) + self.whole * whole
        router = Format("routers", ROUTER_BITS, ROUTER_GROUP, 2 * whole)
        packed = _packed(self.rows, chosen, whole) + _packed(self.routers, router, whole)
        return packed + self.whole * whole

    def _asked(self, matrix: tuple[str, int, int], asked: Format, whole: int) -> int:
        """The bytes of one matrix as `quantizes` has it packed."""
        from zoo.checkpoint.quantized_matrix import QuantizationSpec

        path, inputs, numbers = matrix
        mode = asked.name if asked.name in FLOAT_MODES else "affine"
        quantization = QuantizationSpec(asked.bits, asked.group, mode)
        if path.endswith(f".{ROUTERS}"):
            quantization = QuantizationSpec(ROUTER_BITS, ROUTER_GROUP)
        assert self.quantizes is not None
        quantization = self.quantizes(path, quantization)
        if quantization is None or inputs % quantization.group_size:
            return numbers * whole
        scale = 2 * whole if quantization.mode == "affine" else 1
        return Format(path, quantization.bits, quantization.group_size, scale).bytes(numbers)

    def to_json(self) -> dict[str, Any]:
        """The same as JSON: rows as [inputs, numbers]; with `bytes` by format where `quantizes` has its own rule."""
        found: dict[str, Any] = {
            "rows": [list(pair) for pair in self.rows],
            "router_rows": [list(pair) for pair in self.routers],
            "whole": self.whole,
        }
        if self.quantizes is not None:
            names = (*FLOATS, *map(str, AFFINE_BITS[1:]), *FLOAT_MODES)
            found["bytes"] = {name: self.bytes(name) for name in names}
        return found


def _packed(rows: Iterable[tuple[int, int]], chosen: Format, whole: int) -> int:
    return sum(
        numbers * whole if inputs % chosen.group else chosen.bytes(numbers) for inputs, numbers in rows
    )


def weights_of(recipe: Any, quantizes: Callable[[str, Any], Any] | None = None) -> Weights | None:
    """The numbers of a recipe by how they are packed; None where its matrices are not known.

    `quantizes` is that of its architecture.
    """
    if is_opaque(recipe):
        return None
    matrices: list[tuple[str, int, int]] = []
    rows: dict[int, int] = {}
    routers: dict[int, int] = {}
    for path, spec, width in with_widths(recipe, recipe.dim):
        for matrix in spec.matrices(width):
            if matrix.packs:
                matrices.append((f"{path}.{matrix.name}", matrix.inputs, matrix.numbers))
                into = routers if matrices[-1][0].endswith(f".{ROUTERS}") else rows
                into[matrix.inputs] = into.get(matrix.inputs, 0) + matrix.numbers
    packable = sum(rows.values()) + sum(routers.values())
    whole = recipe.parameters(recipe.dim) - packable
    packed, routed = tuple(sorted(rows.items())), tuple(sorted(routers.items()))
    return Weights(packed, routed, whole, tuple(matrices), quantizes)
