"""LongRoPE. Axes: B batch, d how many dimensions of a head are turned."""

import mlx.core as mx

from zoo.blocks.position import Scaling


class LongScaling(Scaling):
    """Wavelength k times factor k, of one list of factors or the other (Ding et al., 2024, equation 2)."""

    depends_on_length = True
    settles = True

    def __init__(self, spec, *, dim, index=0):
        super().__init__(spec, dim=dim, index=index)
        for name in ("short", "long"):
            if len(getattr(spec, name)) != dim // 2:
                raise ValueError(
                    f"{name}: {len(getattr(spec, name))} factors for {dim // 2} pairs of dimensions"
                )
        self.magnitude, self.stable_length = spec.magnitude, spec.context
        # A leading underscore keeps what is computed out of the parameters.
        self._short, self._long = mx.array(spec.short), mx.array(spec.long)

    def wavelengths_at(self, length, theta, dims):
        """Positions a radian, (d/2,) or (B, d/2), for texts of `length` tokens, a scalar or (B, 1)."""
        factors = mx.where(length > self.spec.context, self._long, self._short)
        return factors * theta ** (mx.arange(0, dims, 2) / dims)
