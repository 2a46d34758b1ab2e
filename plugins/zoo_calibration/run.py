"""The run that methods share: a model over a calibration text, a layer at a time, each linear layer rounded in its turn.

Axes: O outputs, I inputs, E stacked matrices, G groups of inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from zoo.checkpoint.calibration import CalibrationTask
from zoo.checkpoint.quantized_matrix import QuantizationSpec, QuantizedMatrix
from zoo.errors import ZooError, warn
from zoo.loading import Loaded, load
from zoo_calibration.grids import packed
from zoo_calibration.layerwise import Layer, Layerwise
from zoo_calibration.text import inputs_of
from zoo_calibration.watch import InputSums

# From weights (O, I) and the Gram matrix of their inputs (I, I), the places on the grid (O, I), scales and biases (O, G).
Rounds = Callable[
    [np.ndarray, np.ndarray, QuantizationSpec, mx.Dtype], tuple[np.ndarray, np.ndarray, np.ndarray]
]
# Changes the floats of a layer of the model before they are rounded, and returns those that it changed, by path.
Prepares = Callable[[Layer, Any, CalibrationTask], dict[str, Any]]


def loaded_of(task: CalibrationTask) -> Loaded:
    """The checkpoint of a task as a model that runs, with floats."""
    checkpoint = task.opened.checkpoint
    return load(checkpoint.path, architecture=checkpoint.architecture, registry=checkpoint.registry)


def linears_of(model: nn.Module, task: CalibrationTask) -> dict[str, nn.Module]:
    """The linear layers, by path, that the task quantizes; embeddings are none."""
    modules = dict(model.named_modules())
    owners = (path.removesuffix(".weight") for path in task.quantizations)
    return {owner: modules[owner] for owner in owners if not isinstance(modules[owner], nn.Embedding)}


def check_affine(task: CalibrationTask) -> None:
    """ZooError where a matrix is to be quantized in another mode than affine, or none is to be."""
    modes = {spec.mode for spec in task.quantizations.values()}
    if modes != {"affine"}:
        mode = next(iter(modes - {"affine"}), None)
        reason = "no matrix can be quantized" if mode is None else f"{task.calibration.method} has no {mode}"
        raise ZooError(f"`calibrate`: {reason}")


def round_layers(task: CalibrationTask, rounds: Rounds, prepares: Prepares | None = None) -> dict[str, Any]:
    """The parameters of a checkpoint by path: its linear layers rounded, and what `prepares` changed before.

    Each layer of the model sees the outputs of the rounded layers before it.
    """
    check_affine(task)
    loaded = loaded_of(task)
    linears = linears_of(loaded.model, task)
    parameters: dict[str, Any] = {}
    done = 0
    for layer in Layerwise(loaded.model, inputs_of(loaded, task.calibration), linears):
        if prepares is not None:
            parameters |= prepares(layer, loaded.model, task)
        for path, sums in layer.sums.items():
            name, module = f"{path}.weight", layer.linears[path]
            matrix = _round_matrix(name, module.weight, sums, rounds, task)
            module.weight = matrix.numbers(module.weight.dtype)
            mx.eval(module.weight)
            parameters[name], done = matrix, done + 1
            if task.calibration.report is not None:
                task.calibration.report(done, len(linears))
    if left := [path for path in linears if f"{path}.weight" not in parameters]:
        others = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        warn(f"{left[0]}{others}: not run by the calibration text, rounded without it")
    return parameters


def _round_matrix(
    name: str, weight: mx.array, sums: InputSums, rounds: Rounds, task: CalibrationTask
) -> QuantizedMatrix:  # (O, I) or (E, O, I)
    spec, dtype = task.quantizations[name], task.float_dtype(name)
    weights, grams = np.array(weight.astype(mx.float32)), np.array(sums.gram)
    if weights.ndim == 2:
        all_places, scales, biases = rounds(weights, grams, spec, dtype)
    else:
        each = [rounds(one, gram, spec, dtype) for one, gram in zip(weights, grams, strict=True)]
        all_places, scales, biases = map(np.stack, zip(*each, strict=True))
    return packed(name, all_places, scales, biases, spec, dtype)
