"""The bytes of a model's weights in each format, and of its caches; the longest text that fits. Imports no mlx.

Weights follow the rule of `zoo convert`: a matrix is packed where its layer has a quantized form and its rows divide into groups; a router's scores get eight bits;
all else stays whole. An architecture's own `quantizes` may change what a matrix gets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

from zoo.checkpoint.quantization_settings import AFFINE_BITS, FLOAT_MODES, ROUTER_BITS, ROUTER_GROUP, ROUTERS
from zoo.describe.facts.counts import DECODER, is_opaque, memories, stacks, with_widths
from zoo.describe.language import message
from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model
from zoo.recipe.policy import CachePolicy

FLOATS = {"float32": 4, "bfloat16": 2, "float16": 2}
FORMATS = ("float32", "bfloat16", "8", "6", "4", "mxfp4")  # those that a sheet has
NAMES = (*FLOATS, *map(str, AFFINE_BITS[1:]), *FLOAT_MODES)
GROUP = 64  # inputs, or cached numbers, that share a scale and a bias in affine quantizations
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


def format_label(name: str) -> str:
    """A format as a person reads it: "4 bits"."""
    return message("{n} bits", n=name) if name.isdecimal() else name


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
        """The bytes of one matrix, in the format that `quantizes` gives it; where that is None, it stays whole."""
        chosen = ROUTER if _is_router(path) else chosen
        packing: Format | None = chosen
        if self.quantizes is not None:
            from zoo.checkpoint.quantized_matrix import QuantizationSpec

            mode = chosen.name if chosen.name in FLOAT_MODES else "affine"
            spec = self.quantizes(path, QuantizationSpec(chosen.bits, chosen.group, mode))
            packing = spec and Format(
                path, spec.bits, spec.group_size, 2 * WHOLE if spec.mode == "affine" else 1
            )
        return numbers * WHOLE if packing is None or inputs % packing.group else packing.bytes(numbers)

    def to_json(self) -> dict[str, Any]:
        """How many numbers are in rows of so many inputs, as [inputs, numbers], those of routers apart.

        With `bytes` by format where `quantizes` has its own rule.
        """
        rows, routers = Counter[int](), Counter[int]()
        for path, inputs, numbers in self.matrices:
            (routers if _is_router(path) else rows)[inputs] += numbers
        plain, routed = (sorted(map(list, counts.items())) for counts in (rows, routers))
        values: dict[str, Any] = {"rows": plain, "router_rows": routed, "whole": self.whole}
        if self.quantizes is not None:
            values["bytes"] = {name: self.bytes(name) for name in NAMES}
        return values


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


# Of a number in a recurrent state. Mamba's is float32 in a model of any dtype, since every token adds to the same
# number; the inputs of its convolution, and the states of LSTM and GRU, have the model's own.
STATE_BYTES = 4
POLICIES = {"16-bit": 2.0, "8-bit": 1 + 4 / GROUP, "4-bit": 0.5 + 4 / GROUP}  # bytes a cached number
LENGTHS = {"4k": 4096, "32k": 32768, "128k": 131072}  # tokens
MOST = 2**40  # tokens: beyond any machine


@frozen()
class CacheSize(Frozen):
    """The cache of `layers` parts of one kind: numbers for each of the last `window` tokens, and those of a state.

    `kind` is "full", "window", "latent", "state" or a plugin's own. The numbers are those of all `layers` together.
    """

    kind: str
    layers: int
    numbers_per_token: int
    window: int | None
    state_numbers: int

    def bytes(self, tokens: int, policy: str = "16-bit") -> int:
        """Bytes after so many tokens; a state is never quantized."""
        held = tokens if self.window is None else min(tokens, self.window)
        return round(self.numbers_per_token * held * POLICIES[policy]) + self.state_numbers * STATE_BYTES


def cache_sizes(recipe: Model) -> tuple[CacheSize, ...]:
    """The caches of a recipe, by the kind of layer and its window."""
    if is_opaque(recipe):
        keys, state = recipe.kv_cache_size(recipe.dim), recipe.state_size(recipe.dim)
        return (CacheSize("full", len(recipe.layers), keys, None, state),)
    by_kind: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
    for part, width in memories(recipe):
        window = part.attention_window if not part.recurrent else None
        sizes = part.kv_cache_size(width), part.state_size(width)
        by_kind.setdefault((part.cache_kind, window), []).append(sizes)
    return tuple(
        CacheSize(kind, len(parts), sum(keys for keys, _ in parts), window, sum(state for _, state in parts))
        for (kind, window), parts in by_kind.items()
    )


def source_numbers(recipe: Model) -> int:
    """How many numbers cross-attention keeps for each token of the source."""
    decoder = stacks(recipe).get(DECODER)
    if decoder is None:
        return 0
    parts = (part for layer in decoder.layers for _, part in layer.walk() if part.kind == "cross")
    return sum(m.outputs for p in parts for m in p.matrices(decoder.dim) if m.name in ("key", "value"))


def cache_bytes(kept: tuple[CacheSize, ...], tokens: int, policy: str = "16-bit") -> int:
    """Bytes of all caches after so many tokens."""
    return sum(one.bytes(tokens, policy) for one in kept)


def policy_bytes(recipe: Model, tokens: int, policy: CachePolicy) -> int:
    """Bytes of all caches after so many tokens, by a policy; a number that it does not pack takes 2 bytes.

    Where a mixer does not say how wide its keys are, its keys and values count as two vectors of equal width. PromptError
    for a policy that the model cannot follow, as generation gives it.
    """
    name = "max_kv_size" if policy.max_size is not None else "kv_bits"
    if is_opaque(recipe) and not policy.plain:
        raise PromptError(f"`{name}`: another library's model makes caches of its own")
    total, keys = 0.0, 0
    for part, dim in memories(recipe):
        total += part.state_size(dim) * STATE_BYTES
        if not (numbers := part.kv_cache_size(dim)):
            continue
        keys += 1
        widths = part.kv_widths(dim)
        if widths is not None and (reason := policy.width_mismatch(widths)):
            raise PromptError(reason)
        window = part.attention_window if not part.recurrent else None
        total += policy.bytes(tokens, window, numbers, widths or (numbers // 2, numbers // 2), 2)
    if not keys and not policy.plain:
        raise PromptError(
            f"`{name}`: this model keeps no keys and values, but states, whose size no text changes"
        )
    return round(total)


def largest_context(kept: tuple[CacheSize, ...], room: int, most: int | None) -> int | None:
    """The longest text, up to `most`, whose cache fits into `room` bytes; None when there is no bound.

    0 when there is no room for one token.
    """
    lengths = range(1, (most or MOST) + 1)
    longest = bisect_right(lengths, room, key=lambda tokens: cache_bytes(kept, tokens))
    return longest if longest < len(lengths) else most
