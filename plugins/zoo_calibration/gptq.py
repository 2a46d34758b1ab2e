"""GPTQ: the weights of an input are rounded, and those of the inputs after it corrected for the error.

Frantar et al., 2022 (arXiv:2210.17323), algorithm 1. Axes: O outputs, I inputs, G groups of inputs, N inputs of a group.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from zoo.checkpoint.calibration import CalibrationTask
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo_calibration.grids import packed, places, search
from zoo_calibration.layerwise import Layerwise
from zoo_calibration.model import linears_of, loaded_of
from zoo_calibration.text import inputs_of
from zoo_calibration.watch import InputSums

DAMPING = 0.01  # of the mean of the diagonal, added to it


def gptq(task: CalibrationTask) -> dict[str, Any]:
    """The linear layers of a checkpoint rounded with error correction, by the path of the weight."""
    loaded = loaded_of(task)
    linears = linears_of(loaded.model, task)
    found: dict[str, Any] = {}
    for layer in Layerwise(loaded.model, inputs_of(loaded, task.calibration), linears):
        for path, sums in layer.sums.items():
            name = f"{path}.weight"
            module = layer.linears[path]
            matrix = rounded(name, module.weight, sums, task.quantizations[name], task.float_dtype(name))
            module.weight = matrix.numbers(module.weight.dtype)
            found[name] = matrix
            mx.eval(module.weight)
            if task.calibration.report is not None:
                task.calibration.report(len(found), len(linears))
    return found


def rounded(
    name: str, weight: mx.array, sums: InputSums, spec: QuantizationSpec, dtype: mx.Dtype
) -> QuantizedMatrix:  # (…, O, I)
    """A matrix, or stacked ones, rounded with error correction."""
    weights = np.array(weight.astype(mx.float32))
    grams = np.array(sums.gram)
    if weights.ndim == 2:
        return packed(name, *round_matrix(weights, grams, spec, dtype), spec, dtype)
    each = [round_matrix(one, gram, spec, dtype) for one, gram in zip(weights, grams, strict=True)]
    parts = [np.stack(part) for part in zip(*each, strict=True)]
    return packed(name, *parts, spec, dtype)


def round_matrix(
    weights: np.ndarray, gram: np.ndarray, spec: QuantizationSpec, dtype: mx.Dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (O, I), (I, I) -> (O, I), (O, G), (O, G)
    """The places, scales and biases of a matrix whose inputs have the Gram matrix `gram`.

    Scales and biases are chosen when a group's turn comes, for its weights as they are by then.
    """
    inverse = factor(gram)
    rows = weights.T.copy()  # (I, O)
    found = np.empty_like(rows)
    scales, biases = [], []
    for start in range(0, len(rows), spec.group_size):
        end = start + spec.group_size
        scale, bias = search(rows[start:end].T, np.diagonal(inverse)[start:end] ** -2, spec.bits, dtype)
        errors = np.empty_like(rows[start:end])
        for index in range(start, end):
            place = places(rows[index], scale, bias, spec.bits)
            error = (rows[index] - (scale * place + bias)) / inverse[index, index]
            found[index], errors[index - start] = place, error
            rows[index + 1 : end] -= inverse[index, index + 1 : end, None] * error
        rows[end:] -= inverse[start:end, end:].T @ errors
        scales.append(scale)
        biases.append(bias)
    return found.T, np.stack(scales, axis=-1), np.stack(biases, axis=-1)


def factor(gram: np.ndarray) -> np.ndarray:  # (I, I) -> (I, I)
    """The upper U of gram⁻¹ = UᵀU, the Cholesky factor of the inverse, of the damped Gram matrix."""
    damped = gram.astype(np.float64)
    mean = np.diagonal(damped).mean()
    damped[np.diag_indices_from(damped)] += DAMPING * mean if mean > 0 else 1.0
    # With the inputs in reverse, gram = L Lᵀ; so gram = M Mᵀ with M upper, and U = M⁻¹.
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    return np.linalg.inv(lower[::-1, ::-1]).astype(np.float32)
