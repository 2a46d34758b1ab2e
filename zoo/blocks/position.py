"""What tells a token its place: learned vectors, and rotations of queries and keys.

Axes: B batch, T length, H heads, K width of a head, D width. `offset` is the position of the first of the T
tokens: a number, or (B,) when rows are padded on the left and so start at different, negative ones.
"""

import math

import mlx.core as mx
import mlx.nn as nn

from zoo.errors import PromptError


class LearnedPositions(nn.Module):
    """A table of one vector a position, (offset + context, D)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.weight = mx.random.normal((spec.offset + spec.context, dim), scale=0.02)
        self.context, self.skipped = spec.context, spec.offset

    def __call__(self, length, offset=0):  # -> (T, D), or (B, T, D) for an offset a row
        if isinstance(offset, int):
            if offset + length > self.context:
                raise PromptError(
                    f"{offset + length} tokens are more than the {self.context} learned positions"
                )
            return self.weight[self.skipped + offset : self.skipped + offset + length]
        # Padding, on either side, has no place: any will do.
        return self.weight[self.skipped + mx.clip(places(length, offset), 0, self.context - 1)]


class SinusoidalPositions(nn.Module):
    """sin and cos of position · frequency k, for k = 0 … D/2 − 1 (Vaswani et al., 2017, section 3.5)."""

    def __init__(self, spec, *, dim, index=0):
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

    def __call__(self, length, offset=0):  # -> (T, D), or (B, T, D) for an offset a row
        place = (self.spec.offset + places(length, offset)).astype(mx.float32)[..., None]
        whole = place * self._coarse
        angles = 2 * math.pi * (whole - mx.floor(whole) + place * self._fine)  # (…, T, D/2)
        waves = [mx.sin(angles), mx.cos(angles)]
        if self.spec.interleaved:
            return mx.stack(waves, axis=-1).flatten(-2)[..., : self.dim]
        return mx.concatenate(waves, axis=-1)[..., : self.dim]


class RoPE(nn.Module):
    """Pair k of a head turns by position · frequency_k (Su et al., 2021, equation 34).

    R_jᵀ R_i = R_{i−j}: a score depends on the distance of two tokens only. Values are not turned. Where the angles
    depend on how long a text is, each row of a batch has its own length, and keys that were turned for a shorter text
    are not those of a longer one: attention caches them unturned (`depends_on_length`).
    """

    def __init__(self, spec, *, dim, index=0, scaling=None):
        super().__init__()
        self.dims = spec.dims or dim
        self.theta = spec.theta
        self.interleaved = spec.interleaved
        self.scaling = scaling
        self.magnitude = 1.0 if scaling is None else scaling.magnitude
        # A leading underscore keeps the computed wavelengths out of the parameters.
        self._wavelengths = None
        if scaling is not None and not self.depends_on_length:
            self._wavelengths = scaling.wavelengths(frequencies(spec.theta, self.dims))

    @property
    def depends_on_length(self):
        """Whether the angle of a position changes with the length of the text."""
        return self.scaling is not None and self.scaling.depends_on_length

    def __call__(self, x, offset=0):  # (B, H, T, K) -> (B, H, T, K)
        """`offset` as above, or every token's own position, (B, T)."""
        if self.magnitude != 1.0:
            turned = x[..., : self.dims] * self.magnitude
            x = mx.concatenate([turned, x[..., self.dims :]], -1) if self.dims < x.shape[-1] else turned
        wavelengths = self._wavelengths
        if self.depends_on_length:
            wavelengths = self.scaling.wavelengths_at(text_length(x.shape[-2], offset), self.theta, self.dims)
        explicit = isinstance(offset, mx.array) and offset.ndim == 2
        if explicit or (wavelengths is not None and wavelengths.ndim == 2):
            if wavelengths is None:
                wavelengths = mx.array([1 / f for f in frequencies(self.theta, self.dims)])
            return turned_by(x, places(x.shape[-2], offset), wavelengths, self.interleaved)
        base = self.theta if wavelengths is None else None
        return mx.fast.rope(
            x, self.dims, traditional=self.interleaved, base=base, scale=1.0, offset=offset, freqs=wavelengths
        )


def frequencies(theta, dims):
    """theta^(−2k/d) for k = 0 … d/2 − 1, in radians a position."""
    return [theta ** (-2 * k / dims) for k in range(dims // 2)]


def places(length, offset=0):
    """The position of each of `length` tokens: (T,), or (B, T) where rows start at offsets (B,) or have (B, T) told."""
    if isinstance(offset, mx.array) and offset.ndim == 2:
        return offset
    start = offset[:, None] if isinstance(offset, mx.array) and offset.ndim else offset
    return start + mx.arange(length)


def text_length(length, offset=0):
    """How many tokens each row has with these: a scalar, or (B, 1) where rows start at offsets of their own."""
    if isinstance(offset, mx.array) and offset.ndim:
        return places(length, offset).max(axis=1, keepdims=True) + 1
    return mx.array(offset + length)


def turned_by(x, positions, wavelengths, interleaved=False):
    """The pairs of (B, H, T, K) turned by position ÷ wavelength: (T,) or (B, T) by (d/2,) or (B, d/2), d ≤ K."""
    angles = positions[..., None].astype(mx.float32) / wavelengths[..., None, :]  # (T, d/2) or (B, T, d/2)
    angles = angles[:, None] if angles.ndim == 3 else angles  # (B, 1, T, d/2)
    cos, sin = mx.cos(angles), mx.sin(angles)
    dims = 2 * wavelengths.shape[-1]
    pairs = x[..., :dims].astype(mx.float32)
    if interleaved:
        first, second = pairs[..., 0::2], pairs[..., 1::2]
    else:
        first, second = mx.split(pairs, 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    joined = mx.stack(turned, axis=-1).flatten(-2) if interleaved else mx.concatenate(turned, axis=-1)
    return mx.concatenate([joined.astype(x.dtype), x[..., dims:]], axis=-1)


class Scaling(nn.Module):
    """How the wavelengths of rotary positions are changed; `dim` is how many dimensions of a head are turned.

    Subclasses give `wavelengths(base)`, or say that they depend on the length of the text and give `wavelengths_at`.
    Queries and keys are multiplied by `magnitude`.
    """

    depends_on_length = False
    magnitude = 1.0

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        raise NotImplementedError

    def wavelengths_at(self, length, theta, dims):
        """The same for a text of `length` tokens, an array: (K/2,) for a scalar, (B, K/2) for (B, 1)."""
        raise NotImplementedError


class LinearScaling(Scaling):
    """Every frequency divided by the factor: position interpolation (Chen et al., 2023, equation 4)."""

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        return mx.array([self.spec.factor / f for f in base])


class DynamicScaling(Scaling):
    """Past the trained context the base grows with the text (NTK-aware scaling; bloc97 and emozilla, 2023)."""

    depends_on_length = True

    def __init__(self, spec, *, dim, index=0):
        super().__init__(spec, dim=dim, index=index)
        if dim < 4:  # the base grows by a power of d / (d − 2)
            raise ValueError(f"turns {dim} dimensions of a head, where it needs four at least")

    def wavelengths_at(self, length, theta, dims):
        """Positions a radian, (K/2,) or (B, K/2), for a text of `length` tokens."""
        factor, context = self.spec.factor, self.spec.context
        length = mx.maximum(length, context).astype(mx.float32)
        growth = factor * length / context - (factor - 1)
        powers = mx.arange(0, dims, 2).astype(mx.float32) / dims
        return (theta * growth ** (dims / (dims - 2))) ** powers


class Llama3Scaling(Scaling):
    """Wavelengths over context/low are divided by the factor, those under context/high kept, a blend between.

    LLaMA 3.1 (2024).
    """

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        spec = self.spec

        def scaled(frequency):
            turns = spec.context * frequency / (2 * math.pi)  # whole turns within the trained context
            kept = min(max((turns - spec.low) / (spec.high - spec.low), 0.0), 1.0)
            return kept * frequency + (1 - kept) * frequency / spec.factor

        return mx.array([1 / scaled(f) for f in base])


class YarnScaling(Scaling):
    """Dimensions that turn often in the trained context are kept, rare ones interpolated (Peng et al., 2023)."""

    def __init__(self, spec, *, dim, index=0):
        super().__init__(spec, dim=dim, index=index)
        self.magnitude = spec.magnitude

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        spec, dims = self.spec, 2 * len(base)
        log_theta = -math.log(base[1]) * dims / 2 if len(base) > 1 else 1.0

        def dimension(turns):  # the one that makes so many turns within the context; section 3.2
            return dims * math.log(spec.context / (turns * 2 * math.pi)) / (2 * log_theta)

        low, high = dimension(spec.fast), dimension(spec.slow)
        if spec.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        width = high - low or 0.001

        def scaled(k, frequency):
            interpolated = min(max((k - low) / width, 0.0), 1.0)
            return frequency * (1 - interpolated) + frequency / spec.factor * interpolated

        return mx.array([1 / scaled(k, f) for k, f in enumerate(base)])
