"""AWQ: inputs of large values are scaled up in the weights, whose rounding then costs less, and down in the module before.

Lin et al., 2023 (arXiv:2306.00978). The scales are powers of the mean size of each input (equation 5); the error is that of
the layers' outputs, from the Gram matrices of their inputs. Then the range of each group is clipped where that lowers the
error. Axes: O outputs, I inputs, G groups of inputs, N inputs of a group.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from zoo.blocks.model import modules_of
from zoo.checkpoint.calibration import CalibrationTask
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo_calibration.folds import Fold, folds
from zoo_calibration.grids import places, search
from zoo_calibration.layerwise import Layer
from zoo_calibration.run import round_layers

POWERS = [step / 20 for step in range(20)]  # of the mean size, that are tried
SMALLEST = 0.1  # of the mean of the sizes: an input that the text hardly uses still keeps its digits


def awq(task: CalibrationTask) -> dict[str, Any]:
    """The linear layers of a checkpoint scaled, clipped and rounded, and what the scales are folded into, by path."""
    return round_layers(task, clip_matrix, scale_layer)


def scale_layer(layer: Layer, model: nn.Module, task: CalibrationTask) -> dict[str, Any]:
    """Scale the inputs of a layer's linear layers where that can be folded. Returns the arrays it changed, by path."""
    changed: dict[str, Any] = {}
    modules = modules_of(model)
    for fold in folds(layer, modules):
        watched = [path for path in fold.after if path in layer.sums]
        if not watched:
            continue
        scales = best_scales(fold, layer, task)
        fold.apply(scales)
        for path in watched:
            layer.sums[path].divide(scales)
        for path in (fold.before, *fold.after):
            arrays = {name: modules[path][name] for name in ("weight", "bias") if name in modules[path]}
            mx.eval(arrays)
            changed |= {f"{path}.{name}": array for name, array in arrays.items()}
    return {path: array.astype(task.float_dtype(path)) for path, array in changed.items()}


def best_scales(fold: Fold, layer: Layer, task: CalibrationTask) -> mx.array:  # (I,)
    """The scales with which rounding changes the outputs of the layers after a fold the least."""
    sums = {path: layer.sums[path] for path in fold.after if path in layer.sums}
    size = sum(each.size.reshape(-1, each.size.shape[-1]).sum(axis=0) for each in sums.values())
    size = mx.maximum(size / size.mean(), SMALLEST)
    best, least = mx.ones_like(size), float("inf")
    for power in POWERS:
        scales = size**power
        scales = scales / mx.sqrt(scales.max() * scales.min())
        error = 0.0
        for path, each in sums.items():
            weight = fold.modules[path].weight.astype(mx.float32)
            asked = task.quantizations[f"{path}.weight"].as_json()
            lost = mx.dequantize(*mx.quantize(weight * scales, **asked), **asked) / scales - weight
            error += ((lost @ each.gram) * lost).sum().item()
        if error < least:
            best, least = scales, error
    return best


def clip_matrix(
    weights: np.ndarray, gram: np.ndarray, spec: QuantizationSpec, dtype: mx.Dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # (O, I), (I, I) -> (O, I), (O, G), (O, G)
    """The places, scales and biases of a matrix, the range of each group that of the least error of its own outputs."""
    all_places, scales, biases = [], [], []
    for start in range(0, weights.shape[1], spec.group_size):
        group = slice(start, start + spec.group_size)
        scale, bias = search(weights[:, group], partial(_cost, gram[group, group]), spec.bits, dtype)
        all_places.append(places(weights[:, group], scale[:, None], bias[:, None], spec.bits))
        scales.append(scale)
        biases.append(bias)
    return np.concatenate(all_places, axis=-1), np.stack(scales, axis=-1), np.stack(biases, axis=-1)


def _cost(gram: np.ndarray, errors: np.ndarray) -> np.ndarray:  # (N, N), (O, N) -> (O,)
    costs: np.ndarray = ((errors @ gram) * errors).sum(axis=-1)
    return costs
