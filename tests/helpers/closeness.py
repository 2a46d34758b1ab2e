"""How far numbers that a test compares may lie apart."""

import mlx.core as mx
import numpy as np

from tests.helpers.pretended_gpu import PRETENDED

ROUNDING = 2e-2 if PRETENDED else 0.0  # of the largest: numbers have the 16 bits of their checkpoint


def close(found, expected, atol=1e-8, rtol=1e-5):
    """`np.allclose`, up to the rounding of this mode's dtypes."""
    found, expected = (np.array(mx.array(each).astype(mx.float32)) for each in (found, expected))
    return np.allclose(found, expected, rtol, atol + ROUNDING * np.abs(expected).max())
