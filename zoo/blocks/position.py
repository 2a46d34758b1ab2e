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
        places = mx.clip(offset[:, None] + mx.arange(length), 0, self.context - 1)
        return self.weight[self.skipped + places]


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
        start = offset if isinstance(offset, int) else offset[:, None]
        places = (self.spec.offset + start + mx.arange(length)).astype(mx.float32)[..., None]
        whole = places * self._coarse
        angles = 2 * math.pi * (whole - mx.floor(whole) + places * self._fine)  # (…, T, D/2)
        waves = [mx.sin(angles), mx.cos(angles)]
        if self.spec.interleaved:
            return mx.stack(waves, axis=-1).flatten(-2)[..., : self.dim]
        return mx.concatenate(waves, axis=-1)[..., : self.dim]


class RoPE(nn.Module):
    """Pair k of a head turns by position · frequency_k (Su et al., 2021, equation 34).

    R_jᵀ R_i = R_{i−j}: a score depends on the distance of two tokens only. Values are not turned.
    """

    def __init__(self, spec, *, dim, index=0, scaling=None):
        super().__init__()
        self.dims = spec.dims or dim
        self.theta = spec.theta
        self.interleaved = spec.interleaved
        self.scaling = scaling
        # A leading underscore keeps the computed wavelengths out of the parameters.
        self._wavelengths = None
        if scaling is not None and not scaling.depends_on_length:
            self._wavelengths = scaling.wavelengths(frequencies(spec.theta, self.dims))
        self.magnitude = getattr(scaling, "magnitude", 1.0)

    def __call__(self, x, offset=0):  # (B, H, T, K) -> (B, H, T, K)
        wavelengths = self._wavelengths
        if wavelengths is None and self.scaling is not None:
            wavelengths = self.scaling.wavelengths_at(
                mx.max(mx.array(offset)) + x.shape[-2], self.theta, self.dims
            )
        if self.magnitude != 1.0:
            turned = x[..., : self.dims] * self.magnitude
            x = mx.concatenate([turned, x[..., self.dims :]], -1) if self.dims < x.shape[-1] else turned
        base = self.theta if wavelengths is None else None
        return mx.fast.rope(
            x, self.dims, traditional=self.interleaved, base=base, scale=1.0, offset=offset, freqs=wavelengths
        )


def frequencies(theta, dims):
    """theta^(−2k/d) for k = 0 … d/2 − 1, in radians a position."""
    return [theta ** (-2 * k / dims) for k in range(dims // 2)]


class LinearScaling(nn.Module):
    """Every frequency divided by the factor: position interpolation (Chen et al., 2023, equation 4)."""

    depends_on_length = False

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        return mx.array([self.spec.factor / f for f in base])


class DynamicScaling(nn.Module):
    """Past the trained context the base grows with the text (NTK-aware scaling; bloc97 and emozilla, 2023)."""

    depends_on_length = True

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec

    def wavelengths_at(self, length, theta, dims):
        """Positions a radian, (K/2,), for a text of `length` tokens."""
        factor, context = self.spec.factor, self.spec.context
        length = mx.maximum(length, context).astype(mx.float32)
        growth = factor * length / context - (factor - 1)
        powers = mx.arange(0, dims, 2).astype(mx.float32) / dims
        return (theta * growth ** (dims / (dims - 2))) ** powers


class Llama3Scaling(nn.Module):
    """Wavelengths over context/low are divided by the factor, those under context/high kept, a blend between.

    LLaMA 3.1 (2024).
    """

    depends_on_length = False

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec

    def wavelengths(self, base):
        """Positions a radian, (K/2,), given the unscaled frequencies."""
        spec = self.spec

        def scaled(frequency):
            turns = spec.context * frequency / (2 * math.pi)  # whole turns within the trained context
            kept = min(max((turns - spec.low) / (spec.high - spec.low), 0.0), 1.0)
            return kept * frequency + (1 - kept) * frequency / spec.factor

        return mx.array([1 / scaled(f) for f in base])


class YarnScaling(nn.Module):
    """Dimensions that turn often in the trained context are kept, rare ones interpolated (Peng et al., 2023)."""

    depends_on_length = False

    def __init__(self, spec, *, dim, index=0):
        super().__init__()
        self.spec = spec
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
