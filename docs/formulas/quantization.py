"""Affine quantization of a group of weights."""

import mlx.core as mx


def quantize(w, s, b, bits):  # (n), (), () -> (n), the weights of one group
    """The weights as whole numbers q, and back as the floats that the model computes with."""
    q = mx.round((w - b) / s)
    q = mx.clip(q, 0, 2**bits - 1)  # stored, with s and b
    return s * q + b
