"""Position embeddings: learned, sinusoidal, and rotary (RoPE) with its scalings.

Axes: B batch, T length, H heads, K width of a head, D width. `offset` is the position of the first of the T
tokens: a number, or (B,) when rows are padded on the left and so start at different, negative positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo import recipe, runtime
from zoo.errors import PromptError


class LearnedPositions(nn.Module):
    """A learned vector for each position: a table (offset + context, D) (Gehring et al., 2017)."""

    def __init__(self, spec: recipe.LearnedPositions, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.weight = mx.random.normal((spec.offset + spec.context, dim), scale=0.02)
        self.context, self.skipped = spec.context, spec.offset

    def __call__(
        self, length: int, offset: int | mx.array = 0
    ) -> mx.array:  # -> (T, D), or (B, T, D) for an offset a row
        if isinstance(offset, int):
            if offset + length > self.context:
                raise PromptError(
                    f"{offset + length} tokens are more than the {self.context} learned positions"
                )
            return self.weight[self.skipped + offset : self.skipped + offset + length]
        # Padding, on either side, has no position: any row will do.
        return self.weight[self.skipped + mx.clip(token_positions(length, offset), 0, self.context - 1)]


class SinusoidalPositions(nn.Module):
    """sin and cos of position · frequency k, for k = 0 … D/2 − 1 (Vaswani et al., 2017, section 3.5)."""

    def __init__(self, spec: recipe.SinusoidalPositions, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec
        half = (dim + 1) // 2
        span = half - 1 if spec.inclusive else dim / 2
        turns = [spec.theta ** (-k / span) / (2 * math.pi) for k in range(half)]  # whole turns a position
        # In two parts, the first a multiple of 2^−12: its product with a position is exact in float32, so that
        # whole turns can be dropped before anything is rounded. An angle of 1000 rad has an error of 3e-5 by itself.
        coarse = [round(turn * 4096) / 4096 for turn in turns]
        self._coarse = mx.array(coarse)
        self._fine = mx.array([turn - part for turn, part in zip(turns, coarse, strict=True)])
        self.dim = dim

    def __call__(
        self, length: int, offset: int | mx.array = 0
    ) -> mx.array:  # -> (T, D), or (B, T, D) for an offset a row
        position = (self.spec.offset + token_positions(length, offset)).astype(mx.float32)[..., None]
        whole = position * self._coarse
        angles = 2 * math.pi * (whole - mx.floor(whole) + position * self._fine)  # (…, T, D/2)
        waves = [mx.sin(angles), mx.cos(angles)]
        if self.spec.interleaved:
            return mx.stack(waves, axis=-1).flatten(-2)[..., : self.dim]
        return mx.concatenate(waves, axis=-1)[..., : self.dim]


class RoPE(nn.Module):
    """Rotary position embeddings: pair k of a head is rotated by position · frequency_k (Su et al., 2021, equation 34).

    R_jᵀ R_i = R_{i−j}: a score depends on the distance of two tokens only. Values are not rotated. Where the angles
    depend on the length of a text (`depends_on_length`), keys rotated for a shorter text are not those of a longer one:
    attention caches them before they are rotated.
    """

    def __init__(
        self, spec: recipe.RoPE, *, dim: int, index: int = 0, scaling: Scaling | None = None
    ) -> None:
        super().__init__()
        self.dims = spec.dims or dim
        self.theta = spec.theta
        self.interleaved = spec.interleaved
        self.scaling = scaling
        self.magnitude = 1.0 if scaling is None else scaling.magnitude
        self.depends_on_length = scaling is not None and scaling.depends_on_length
        # A leading underscore keeps the computed wavelengths out of the parameters.
        self._wavelengths = None
        self._frequencies: tuple[float, ...] | None = None
        unscaled = frequencies(spec.theta, self.dims)
        if scaling is not None and not scaling.depends_on_length:
            self._wavelengths = scaling.wavelengths(unscaled)
        elif scaling is None and not runtime.has_fused_kernels():
            # MLX's own are less exact there: every way to rotate uses these.
            self._wavelengths = mx.array([1 / f for f in unscaled])

    def __call__(
        self, x: mx.array, offset: int | mx.array = 0, least_length: int = 0
    ) -> mx.array:  # (B, H, T, K) -> (B, H, T, K)
        """`offset` as above, or every token's own position, (B, T). The angles are those of a text of `least_length` or more."""
        if self.magnitude != 1.0:
            scaled = x[..., : self.dims] * self.magnitude
            x = mx.concatenate([scaled, x[..., self.dims :]], -1) if self.dims < x.shape[-1] else scaled
        wavelengths = self._wavelengths
        if self.scaling is not None and self.depends_on_length:
            length = mx.maximum(text_length(x.shape[-2], offset), least_length)
            wavelengths = self.scaling.wavelengths_at(length, self.theta, self.dims)
        explicit = isinstance(offset, mx.array) and offset.ndim == 2
        if explicit or (wavelengths is not None and wavelengths.ndim == 2):
            if wavelengths is None:
                wavelengths = mx.array([1 / f for f in frequencies(self.theta, self.dims)])
            return rotated_by(x, token_positions(x.shape[-2], offset), wavelengths, self.interleaved)
        halves = x.shape[-1] == self.dims and not (self.interleaved or self.depends_on_length)
        if halves and isinstance(offset, int):
            rotated = runtime.rotate_halves(x, self.frequencies, offset)
            if rotated is not None:
                return rotated
        base = self.theta if wavelengths is None else None
        return mx.fast.rope(
            x, self.dims, traditional=self.interleaved, base=base, scale=1.0, offset=offset, freqs=wavelengths
        )

    def frequencies(self) -> tuple[float, ...]:
        """The frequencies in radians a position, (K/2,), where they do not depend on the length of the text."""
        if self._frequencies is None:
            scaled = None if self.scaling is None else self._wavelengths
            found = frequencies(self.theta, self.dims) if scaled is None else (1 / scaled).tolist()
            self._frequencies = tuple(found)
        return self._frequencies


class QueryScale(nn.Module):
    """Queries times a factor that grows by the logarithm of how many contexts stand before them (Meta, 2025)."""

    def __init__(self, spec: recipe.QueryScale, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec

    def __call__(
        self, queries: mx.array, offset: int | mx.array = 0
    ) -> mx.array:  # (B, H, T, K) -> (B, H, T, K)
        spec, length = self.spec, queries.shape[-2]
        if isinstance(offset, int) and offset + length + spec.shift <= spec.context:
            return queries  # all factors are one
        positions = (
            mx.maximum(token_positions(length, offset), 0) + spec.shift
        )  # (T,) or (B, T); padding has none
        factors = 1 + spec.beta * mx.log(1 + (positions // spec.context).astype(mx.float32))
        factors = factors if factors.ndim == 1 else factors[:, None]
        return queries * factors[..., None].astype(queries.dtype)


@dataclass(frozen=True)
class AngleRanges:
    """The ranges of text lengths within which a model's rotary angles are the same for every length.

    `switches` are the lengths, in tokens, at which a range ends. `last` is the length from which on the angles change with
    every token; None: never.
    """

    switches: tuple[int, ...] = ()
    last: int | None = None

    @classmethod
    def of(cls, model: nn.Module) -> AngleRanges:
        """The ranges of all rotary positions in `model`."""
        ropes = (module for module in model.modules() if isinstance(module, RoPE))
        scalings = [rope.scaling for rope in ropes if rope.scaling is not None and rope.depends_on_length]
        changing = [scaling.stable_length for scaling in scalings if not scaling.settles]
        return cls(
            tuple(sorted({scaling.stable_length for scaling in scalings})), min(changing, default=None)
        )

    def index(self, length: int) -> int | None:
        """The number of the range that a text of `length` tokens is in, from 0; None where each length is its own."""
        if self.last is not None and length > self.last:
            return None
        return sum(switch < length for switch in self.switches)

    def end(self, length: int) -> int | None:
        """The last length of the range that a text of `length` tokens is in; None where it has no end."""
        if self.index(length) is None:
            return length
        return next((switch for switch in self.switches if switch >= length), None)


def frequencies(theta: float, dims: int) -> list[float]:
    """theta^(−2k/d) for k = 0 … d/2 − 1, in radians a position."""
    return [theta ** (-2 * k / dims) for k in range(dims // 2)]


def token_positions(length: int, offset: int | mx.array = 0) -> mx.array:
    """The position of each of `length` tokens: (T,), or (B, T) for offsets (B,) or (B, T)."""
    if isinstance(offset, mx.array) and offset.ndim == 2:
        return offset
    start = offset[:, None] if isinstance(offset, mx.array) and offset.ndim else offset
    return start + mx.arange(length)


def text_length(length: int, offset: int | mx.array = 0) -> mx.array:
    """The length of each row with the new tokens: a scalar, or (B, 1) where rows start at offsets of their own."""
    if isinstance(offset, mx.array) and offset.ndim:
        return token_positions(length, offset).max(axis=1, keepdims=True) + 1
    return mx.array(offset + length)


def rotated_by(
    x: mx.array, positions: mx.array, wavelengths: mx.array, interleaved: bool = False
) -> mx.array:
    """The pairs of x (B, H, T, K) rotated by position ÷ wavelength: (T,) or (B, T) by (d/2,) or (B, d/2), d ≤ K."""
    angles = positions[..., None].astype(mx.float32) / wavelengths[..., None, :]  # (T, d/2) or (B, T, d/2)
    angles = angles[:, None] if angles.ndim == 3 else angles  # (B, 1, T, d/2)
    cos, sin = mx.cos(angles), mx.sin(angles)
    dims = 2 * wavelengths.shape[-1]
    pairs = x[..., :dims].astype(mx.float32)
    if interleaved:
        first, second = pairs[..., 0::2], pairs[..., 1::2]
    else:
        first, second = mx.split(pairs, 2, axis=-1)
    rotated = [first * cos - second * sin, second * cos + first * sin]
    joined = mx.stack(rotated, axis=-1).flatten(-2) if interleaved else mx.concatenate(rotated, axis=-1)
    return mx.concatenate([joined.astype(x.dtype), x[..., dims:]], axis=-1)


class Scaling(nn.Module):
    """A scaling of RoPE's wavelengths; `dim` is the number of dimensions of a head that are rotated.

    Subclasses define `wavelengths(base)`, or set `depends_on_length` and define `wavelengths_at`; then `stable_length` is the
    length of text up to which the wavelengths are the same, and `settles` says whether all longer texts share theirs, too.
    Queries and keys are multiplied by `magnitude`.
    """

    depends_on_length = False
    stable_length = 0
    settles = False
    magnitude = 1.0

    def __init__(self, spec: Any, *, dim: int, index: int = 0) -> None:
        super().__init__()
        self.spec = spec

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        raise NotImplementedError

    def wavelengths_at(self, length: mx.array, theta: float, dims: int) -> mx.array:
        """The same for a text of `length` tokens, an array: (K/2,) for a scalar, (B, K/2) for (B, 1)."""
        raise NotImplementedError


class LinearScaling(Scaling):
    """Every frequency divided by the factor: position interpolation (Chen et al., 2023, equation 4)."""

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        return mx.array([self.spec.factor / f for f in base])


class DynamicScaling(Scaling):
    """Past the trained context the base grows with the text (NTK-aware scaling; bloc97 and emozilla, 2023)."""

    depends_on_length = True

    @property
    def stable_length(self) -> int:  # type: ignore[override]
        """The trained context."""
        return self.spec.context

    def wavelengths_at(self, length: mx.array, theta: float, dims: int) -> mx.array:
        factor, context = self.spec.factor, self.spec.context
        length = mx.maximum(length, context).astype(mx.float32)
        growth = factor * length / context - (factor - 1)
        powers = mx.arange(0, dims, 2).astype(mx.float32) / dims
        return (theta * growth ** (dims / (dims - 2))) ** powers


class Llama3Scaling(Scaling):
    """Wavelengths over context/low are divided by the factor, those under context/high kept, a blend between.

    LLaMA 3.1 (2024).
    """

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        spec = self.spec

        def scaled(frequency: float) -> float:
            turns = spec.context * frequency / (2 * math.pi)  # whole turns within the trained context
            width = spec.high - spec.low or 1e-9
            kept = min(max((turns - spec.low) / width, 0.0), 1.0)
            return kept * frequency + (1 - kept) * frequency / spec.factor

        return mx.array([1 / scaled(f) for f in base])


class YarnScaling(Scaling):
    """YaRN: dimensions of many turns within the trained context are kept, of few interpolated (Peng et al., 2023)."""

    def __init__(self, spec: Any, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.magnitude = spec.magnitude

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        spec, dims = self.spec, 2 * len(base)
        log_theta = -math.log(base[1]) * dims / 2 if len(base) > 1 else 1.0

        def dimension(
            turns: float,
        ) -> float:  # the one that makes so many turns within the context; section 3.2
            return dims * math.log(spec.context / (turns * 2 * math.pi)) / (2 * log_theta)

        low, high = dimension(spec.fast), dimension(spec.slow)
        if spec.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        width = high - low or 0.001

        def scaled(k: int, frequency: float) -> float:
            interpolated = min(max((k - low) / width, 0.0), 1.0)
            return frequency * (1 - interpolated) + frequency / spec.factor * interpolated

        return mx.array([1 / scaled(k, f) for k, f in enumerate(base)])


class LongScaling(Scaling):
    """Wavelength k times factor k, of one list of factors or the other (Ding et al., 2024, equation 2)."""

    settles = True

    def __init__(self, spec: Any, *, dim: int, index: int = 0) -> None:
        super().__init__(spec, dim=dim, index=index)
        self.magnitude, self.stable_length = spec.magnitude, spec.context
        self.depends_on_length = spec.short != spec.long
        # A leading underscore keeps what is computed out of the parameters.
        self._short, self._long = mx.array(spec.short), mx.array(spec.long)

    def wavelengths(self, base: Sequence[float]) -> mx.array:
        return mx.array([factor / f for factor, f in zip(self.spec.short, base, strict=True)])

    def wavelengths_at(self, length: mx.array, theta: float, dims: int) -> mx.array:
        factors = mx.where(length > self.spec.context, self._long, self._short)
        return factors * theta ** (mx.arange(0, dims, 2) / dims)
