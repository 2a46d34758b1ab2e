"""Computes the bytes of caches, and the longest text whose cache fits in memory. Imports no mlx."""

from __future__ import annotations

from typing import Any

from zoo.describe.facts.stacks import DECODER, is_opaque, memories, stacks
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.recipe import Model
from zoo.recipe.policy import CachePolicy

# Of a number in a recurrent state. Mamba's is float32 in a model of any dtype, since every token adds to the same
# number; the inputs of its convolution, and the states of LSTM and GRU, have the model's own.
STATE_BYTES = 4
GROUP = 64  # numbers that share a scale and a bias, of 16 bits each, in a quantized cache
POLICIES = {"16-bit": 2.0, "8-bit": 1 + 4 / GROUP, "4-bit": 0.5 + 4 / GROUP}  # bytes a cached number
LENGTHS = {"4k": 4096, "32k": 32768, "128k": 131072}  # tokens
MOST = 2**40  # tokens: beyond any machine


@frozen()
class CacheSize(Frozen):
    """The cache of `layers` parts of one kind: `per_token` numbers for each of the last `window` tokens, and `state`.

    `kind` is "full", "window", "latent", "state" or a plugin's own. The numbers are those of all `layers` together.
    """

    kind: str
    layers: int
    per_token: int
    state: int
    window: int | None = None

    def bytes(self, tokens: int, policy: str = "16-bit") -> int:
        """Bytes after so many tokens; a state is never quantized."""
        held = tokens if self.window is None else min(tokens, self.window)
        return round(self.per_token * held * POLICIES[policy]) + self.state * STATE_BYTES

    def to_json(self) -> dict[str, Any]:
        """The record as JSON."""
        return {
            "kind": self.kind,
            "layers": self.layers,
            "numbers_per_token": self.per_token,
            "window": self.window,
            "state_numbers": self.state,
        }


def cache_sizes(recipe: Model) -> tuple[CacheSize, ...]:
    """The caches of a recipe, by the kind of layer and its window."""
    if is_opaque(recipe):
        found = CacheSize(
            "full", len(recipe.layers), recipe.kv_cache_size(recipe.dim), recipe.state_size(recipe.dim)
        )
        return (found,)
    sums: dict[tuple[str, int | None], list[int]] = {}
    for part, width in memories(recipe):
        window = part.attention_window if not part.recurrent else None
        entry = sums.setdefault((part.cache_kind, window), [0, 0, 0])
        for index, number in enumerate((1, part.kv_cache_size(width), part.state_size(width))):
            entry[index] += number
    return tuple(
        CacheSize(kind, numbers[0], numbers[1], numbers[2], window)
        for (kind, window), numbers in sums.items()
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
    if cache_bytes(kept, 1) > room:
        return 0
    high = most or MOST
    if cache_bytes(kept, high) <= room:
        return most
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cache_bytes(kept, middle) <= room else (low, middle)
    return low
