"""GPTQ: rounds the weights of one input after another, and corrects the weights that are left for each error.

Frantar et al., 2022 (arXiv:2210.17323), algorithm 1. Axes: O outputs, I inputs, G groups of inputs, N inputs of a group.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.checkpoint.calibration import CalibrationTask
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo_calibration.grids import places, search
from zoo_calibration.run import round_layers

DAMPING = 0.01  # of the mean of the diagonal, added to it


def gptq(task: CalibrationTask) -> dict[str, Any]:
    """The linear layers of a checkpoint rounded with error correction, by the path of the weight."""
    return round_layers(task, round_matrix)


def round_matrix(
    weights: np.ndarray, gram: np.ndarray, spec: QuantizationSpec, dtype: mx.Dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (O, I), (I, I) -> (O, I), (O, G), (O, G)
    """The places, scales and biases of a matrix whose inputs have the Gram matrix `gram`.

    Scales and biases are chosen when a group's turn comes, for its weights as they are by then.
    """
    inverse = factor(gram)
    rows = weights.T.copy()  # (I, O)
    all_places = np.empty_like(rows)
    scales, biases = [], []
    for start in range(0, len(rows), spec.group_size):
        end = start + spec.group_size
        cost = partial(_cost, np.diagonal(inverse)[start:end] ** -2)
        scale, bias = search(rows[start:end].T, cost, spec.bits, dtype)
        errors = np.empty_like(rows[start:end])
        for index in range(start, end):
            place = places(rows[index], scale, bias, spec.bits)
            error = (rows[index] - (scale * place + bias)) / inverse[index, index]
            all_places[index], errors[index - start] = place, error
            rows[index + 1 : end] -= inverse[index, index + 1 : end, None] * error
        rows[end:] -= inverse[start:end, end:].T @ errors
        scales.append(scale)
        biases.append(bias)
    return all_places.T, np.stack(scales, axis=-1), np.stack(biases, axis=-1)


def factor(gram: np.ndarray) -> np.ndarray:  # (I, I) -> (I, I)
    """The upper U of gram⁻¹ = UᵀU, the Cholesky factor of the inverse, of the damped Gram matrix."""
    damped = gram.astype(np.float64)
    mean = np.diagonal(damped).mean()
    damped[np.diag_indices_from(damped)] += DAMPING * mean if mean > 0 else 1.0
    # With the inputs in reverse, gram = L Lᵀ; so gram = M Mᵀ with M upper, and U = M⁻¹.
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    upper = mx.array(lower[::-1, ::-1].astype(np.float32))
    return np.array(mx.linalg.tri_inv(upper, upper=True, stream=mx.cpu))  # MLX has it on the CPU alone


def _cost(importance: np.ndarray, errors: np.ndarray) -> np.ndarray:  # (N,), (O, N) -> (O,)
    costs: np.ndarray = errors**2 @ importance
    return costs
