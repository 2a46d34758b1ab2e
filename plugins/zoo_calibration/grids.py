"""MLX's affine grids: the numbers that a group of weights can become, and the packing of their places on the grid.

A group of `group_size` inputs shares a scale and a bias: place q, a whole number of some bits, is scale · q + bias.
Axes: O outputs, I inputs, G groups of inputs, N inputs of a group.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix

SHRINKS = np.linspace(1.0, 0.6, 21, dtype=np.float32)  # of a group's range, that are tried
SMALLEST = 1e-7  # scale


def ends(
    weights: np.ndarray, bits: int, dtype: mx.Dtype
) -> tuple[np.ndarray, np.ndarray]:  # (…, N) -> (…), (…)
    """The scale and bias of each group as `mx.quantize` chooses them: 0 and the end of the larger size lie on the grid."""
    most = 2**bits - 1
    low, high = weights.min(axis=-1), weights.max(axis=-1)
    below = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / most, SMALLEST)
    scale = np.where(below, scale, -scale)
    end = np.where(below, low, high)
    places = np.round(end / scale)
    scale = np.where(places != 0, end / np.where(places != 0, places, 1), scale)
    return stored(scale, dtype), stored(np.where(places != 0, end, 0), dtype)


def stored(numbers: np.ndarray, dtype: mx.Dtype) -> np.ndarray:
    """The numbers in float32, as they are once stored in `dtype`."""
    return np.array(mx.array(numbers.astype(np.float32)).astype(dtype).astype(mx.float32))


def places(weights: np.ndarray, scale: np.ndarray, bias: np.ndarray, bits: int) -> np.ndarray:
    """The nearest place on the grid of each weight."""
    return np.clip(np.round((weights - bias) / scale), 0, 2**bits - 1)


def search(
    weights: np.ndarray, cost: Callable[[np.ndarray], np.ndarray], bits: int, dtype: mx.Dtype
) -> tuple[np.ndarray, np.ndarray]:  # (O, N) -> (O,), (O,)
    """The scale and bias of each row's group, of several shrunken ranges, whose errors (O, N) have the least `cost` (O,)."""
    best = np.full(len(weights), np.inf, np.float32)
    scale = bias = np.zeros(len(weights), np.float32)
    for shrink in SHRINKS:
        new_scale, new_bias = ends(weights * shrink, bits, dtype)
        found = places(weights, new_scale[:, None], new_bias[:, None], bits)
        error = cost(weights - (found * new_scale[:, None] + new_bias[:, None]))
        better = error < best
        best = np.where(better, error, best)
        scale, bias = np.where(better, new_scale, scale), np.where(better, new_bias, bias)
    return scale, bias


def packed(
    name: str,
    found: np.ndarray,
    scales: np.ndarray,
    biases: np.ndarray,
    spec: QuantizationSpec,
    dtype: mx.Dtype,
) -> QuantizedMatrix:  # (…, O, I), (…, O, G), (…, O, G)
    """The matrix of these places, scales and biases, the bits of a row's places one after the other."""
    each = np.unpackbits(found.astype(np.uint8)[..., None], axis=-1, count=spec.bits, bitorder="little")
    words = np.packbits(each.reshape(*found.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint32)
    parts = (mx.array(words), mx.array(scales).astype(dtype), mx.array(biases).astype(dtype))
    return QuantizedMatrix(name, *parts, spec)
