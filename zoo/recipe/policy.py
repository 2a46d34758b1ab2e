"""The policy of KV caches: tokens kept, bits of keys and values, and the bytes they take. Imports no mlx."""

from __future__ import annotations

from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen

GROUPS = (128, 64, 32)  # numbers that may share a scale and a bias
GROUP = 64
BITS = (4, 8)


@frozen()
class CachePolicy(Frozen):
    """The settings of a model's caches. `reserve`: tokens to make room for at once, when the end is known.

    `max_size`: the most tokens whose keys and values are kept, the first `keep` of a text and the newest; None keeps all.
    A key stays the one of its own position, so that distances are the true ones. `key_bits` and `value_bits`, 4 or 8:
    keys and values are quantized, `group_size` numbers to a scale and a bias; None keeps them as they are. The first
    `start` tokens stay as they are, too. `adapter` is the name of the one by which the model computes what is kept.
    `angle_range` is the number of the range of text lengths whose rotary angles what is kept was computed with. PromptError
    for an impossible setting.
    """

    reserve: int = 0
    max_size: int | None = None
    keep: int = 0
    key_bits: int | None = None
    value_bits: int | None = None
    group_size: int = GROUP
    start: int = 0
    adapter: str | None = None
    angle_range: int = 0

    def __post_init__(self) -> None:
        if self.max_size is not None and self.max_size < 1:
            raise PromptError(f"`max_kv_size` must be at least 1, got {self.max_size}")
        if self.keep < 0 or (self.keep and self.keep >= (self.max_size or 0)):
            raise PromptError(f"`keep` must be less than `max_kv_size`, {self.max_size}, got {self.keep}")
        for name, bits in (("key_bits", self.key_bits), ("value_bits", self.value_bits)):
            if bits is not None and bits not in BITS:
                raise PromptError(f"`{name}` must be 4 or 8, got {bits}")
        if self.group_size not in GROUPS:
            raise PromptError(f"`kv_group_size` must be 32, 64 or 128, got {self.group_size}")

    @classmethod
    def of(
        cls,
        *,
        max_kv_size: int | None = None,
        keep: int = 0,
        kv_bits: int | None = None,
        key_bits: int | None = None,
        value_bits: int | None = None,
        kv_group_size: int = GROUP,
        kv_start: int = 0,
        adapter: str | None = None,
        reserve: int = 0,
    ) -> CachePolicy:
        """The policy of the settings of these names. PromptError for one that another has to be given for."""
        if keep and max_kv_size is None:
            raise PromptError("`keep` needs `max_kv_size`: a cache without a bound keeps all tokens")
        bits = key_bits or kv_bits, value_bits or kv_bits
        for name, idle in (("kv_start", not kv_start), ("kv_group_size", kv_group_size == GROUP)):
            if bits == (None, None) and not idle:
                raise PromptError(
                    f"`{name}` needs `kv_bits`, `key_bits` or `value_bits`: nothing is quantized without"
                )
        return cls(reserve, max_kv_size, keep, *bits, kv_group_size, kv_start, adapter)

    @property
    def quantizes(self) -> bool:
        """Whether keys or values are quantized."""
        return self.key_bits is not None or self.value_bits is not None

    @property
    def plain(self) -> bool:
        """Whether caches keep every token as it is."""
        return self.max_size is None and not self.quantizes

    @property
    def recent(self) -> int | None:
        """How many of the newest tokens are kept beside the first `keep`; None: all."""
        return None if self.max_size is None else self.max_size - self.keep

    def bounds(self, window: int | None) -> bool:
        """Whether a layer with this window keeps fewer tokens by `max_size`, None being a layer that sees all."""
        return self.max_size is not None and (window is None or window > self.max_size)

    def group(self, width: int) -> int | None:
        """The size of the groups of a vector of `width` numbers: `group_size`, or the largest that divides it."""
        return next((size for size in (self.group_size, *GROUPS) if width % size == 0), None)

    def columns(self, tokens: int, window: int | None) -> int:
        """How many tokens' keys are kept of a text of so many, in a layer with this window."""
        held = tokens if window is None else min(tokens, window)
        if not self.bounds(window):
            return held
        assert self.max_size is not None
        # The first tokens are there twice: by themselves, and before the newest, where attention reads both in one piece.
        return min(held, self.max_size) + self.keep

    def bytes(
        self, tokens: int, window: int | None, numbers: int, widths: tuple[int, int], whole: float
    ) -> float:
        """The bytes of the keys and values of so many tokens, of `numbers` each, in vectors of these widths.

        A number that is not packed takes `whole` bytes, a scale and a bias, too.
        """
        total, columns = 0.0, self.columns(tokens, window)
        for bits, width in zip((self.key_bits, self.value_bits), widths, strict=True):
            own = numbers * width / sum(widths)  # of a token's numbers, those in keys or in values
            total += own * columns * number_bytes(bits, self.group(width), whole)
            if bits is not None:
                total += own * min(self.start, tokens) * whole
        return total

    def describe(self) -> str:
        """In words what is kept, and in how many bits: "8-bit keys and values, of at most 1,024 tokens"."""
        parts = []
        if self.key_bits == self.value_bits and self.key_bits is not None:
            parts.append(f"{self.key_bits}-bit keys and values")
        else:
            parts += [f"{self.key_bits}-bit keys"] * (self.key_bits is not None)
            parts += [f"{self.value_bits}-bit values"] * (self.value_bits is not None)
        if self.max_size is not None:
            parts.append(f"of at most {self.max_size:,} tokens")
        return ", ".join(parts)

    def width_mismatch(self, widths: tuple[int, int]) -> str | None:
        """The reason why keys and values of these widths cannot be quantized; None when they can."""
        for bits, what, width in zip(
            (self.key_bits, self.value_bits), ("keys", "values"), widths, strict=True
        ):
            if bits is not None and self.group(width) is None:
                return (
                    f"`kv_bits`: {what} of {width} numbers are no groups of 32, 64 or 128 that share a scale"
                )
        return None


def number_bytes(bits: int | None, group: int | None, whole: float = 2) -> float:
    """The bytes of a number in `bits`, in groups with a scale and a bias of `whole` bytes each; None: `whole`."""
    return whole if bits is None or group is None else bits / 8 + 2 * whole / group
