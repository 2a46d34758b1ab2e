"""Bits for each matrix by what its rounding costs: more where the predictions would change, fewer elsewhere.

The cost of a change d of the weights is the divergence of the predictions that it causes, ½ Σ F d² to second order, where
F is the diagonal of the Fisher information: the mean square of the gradient of −ln p(y), with y drawn from the model's own
predictions (Kunstner et al., 2019, arXiv:1905.12558, equation 8). One backward pass over the text gives it for all matrices.
A model without logits has that of a Gaussian around its output. The bits that save most for their bytes are then bought
one after the other, as long as the budget lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.checkpoint.calibration import CalibrationTask
from zoo.checkpoint.quantized_matrix import QuantizationSpec
from zoo.checkpoint.weight_map import fused
from zoo.errors import ZooError
from zoo.loading import Loaded
from zoo_calibration.run import check_affine, loaded_of
from zoo_calibration.text import Inputs, inputs_of

BITS = (3, 4, 5, 6, 8)  # that a matrix may have


@dataclass(frozen=True)
class Option:
    """What a group of matrices costs in one quantization: `bytes`, and the divergence `cost`."""

    spec: QuantizationSpec
    bytes: int
    cost: float


def sensitivity(task: CalibrationTask) -> dict[str, Any]:
    """The quantization of each matrix, by path, that changes the predictions least within `bits` on average.

    Without `bits`, within the bytes of the quantization asked for. ZooError for `bits` that no choice comes to.
    """
    check_affine(task)
    common = Counter(task.quantizations.values()).most_common(1)[0][0]
    chosen = [
        path for path, spec in task.quantizations.items() if spec == common
    ]  # others are fixed: routers
    loaded = loaded_of(task)
    weights = {path: _weight(loaded.model, path) for path in chosen}
    squares = fisher(loaded, inputs_of(loaded, task.calibration), chosen)
    specs = [replace(common, bits=bits) for bits in BITS]
    options: dict[tuple[str, ...], list[Option]] = {}
    for group in _groups(task, chosen):
        options[group] = [
            Option(
                spec,
                sum(stored_bytes(weights[path], spec, task.float_dtype(path)) for path in group),
                sum(cost(weights[path], squares[path], spec) for path in group),
            )
            for spec in specs
        ]
    bought = allocate(options, _room(task, weights, common))
    return {path: option.spec for group, option in bought.items() for path in group}


def fisher(loaded: Loaded, passes: Iterable[Inputs], paths: Iterable[str]) -> dict[str, mx.array]:
    """The sums over the text of the squared gradients of these weights, by path."""
    model, vocab = loaded.model, loaded.recipe.embedding.vocab
    model.freeze()
    modules = dict(model.named_modules())
    for path in paths:
        modules[path.removesuffix(".weight")].unfreeze(keys=["weight"], recurse=False)
    sums: dict[str, mx.array] = {}
    mx.random.seed(0)

    def loss(model: nn.Module, inputs: Inputs) -> mx.array:
        output = model(*inputs).astype(mx.float32)
        if output.shape[-1] != vocab:
            return (output * mx.random.normal(output.shape)).sum()
        drawn = mx.random.categorical(mx.stop_gradient(output))  # (B, T)
        return nn.losses.cross_entropy(output, drawn, reduction="sum")

    for inputs in passes:
        for row in range(inputs[0].shape[0]):
            _, gradients = nn.value_and_grad(model, loss)(
                model, tuple(side[row : row + 1] for side in inputs)
            )
            for path, gradient in tree_flatten(gradients):
                sums[path] = sums.get(path, 0) + gradient.astype(mx.float32) ** 2
            mx.eval(sums)
    return sums


def cost(weight: mx.array, squares: mx.array, spec: QuantizationSpec) -> float:
    """The divergence, summed over the text, that plain rounding in this quantization causes."""
    how = spec.as_json()
    lost = mx.dequantize(*mx.quantize(weight, **how), **how) - weight
    return (squares * lost**2).sum().item() / 2


def stored_bytes(weight: mx.array, spec: QuantizationSpec, dtype: mx.Dtype) -> int:
    """The bytes of a matrix in a quantization, its scales and biases of `dtype`."""
    return weight.size * spec.bits // 8 + 2 * dtype.size * weight.size // spec.group_size


def allocate(options: Mapping[tuple[str, ...], list[Option]], room: int) -> dict[tuple[str, ...], Option]:
    """An option for each group, of at most `room` bytes in all: from the smallest on, what saves most for its bytes."""
    bought = {group: each[0] for group, each in options.items()}
    room -= sum(option.bytes for option in bought.values())
    while True:
        steps = [
            ((now.cost - option.cost) / (option.bytes - now.bytes), group, option)
            for group, now in bought.items()
            for option in options[group]
            if 0 < option.bytes - now.bytes <= room and option.cost < now.cost
        ]
        if not steps:
            return bought
        _, group, option = max(steps, key=lambda step: step[0])
        room -= option.bytes - bought[group].bytes
        bought[group] = option


def _room(task: CalibrationTask, weights: Mapping[str, mx.array], common: QuantizationSpec) -> int:
    """The bytes that the chosen matrices may take; ZooError, with those that can be, for `bits` out of reach."""

    def total(spec: QuantizationSpec) -> int:
        return sum(stored_bytes(weight, spec, task.float_dtype(path)) for path, weight in weights.items())

    if (bits := task.calibration.bits) is None:
        return total(common)
    rest, count = 0, 0
    for path, parameter in task.opened.parameters.items():
        count += parameter.size
        if path in weights:
            continue
        fixed, dtype = task.quantizations.get(path), task.float_dtype(path)
        rest += parameter.size * dtype.size if fixed is None else stored_bytes(parameter, fixed, dtype)
    least, most = ((total(replace(common, bits=end)) + rest) * 8 / count for end in (BITS[0], BITS[-1]))
    if not least <= bits <= most:
        raise ZooError(
            f"`bits` {bits:g}: this model can have from {least:.2f} to {most:.2f}, scales included"
        )
    return int(bits * count / 8) - rest


def _groups(task: CalibrationTask, paths: list[str]) -> list[tuple[str, ...]]:
    """The paths, those together that MLX's layout holds in one tensor, whose parts have one quantization."""
    together = fused(task.opened.checkpoint.architecture.layouts["mlx"], paths)
    alone = set(paths).difference(*together)
    return [*map(tuple, together), *((path,) for path in paths if path in alone)]


def _weight(model: nn.Module, path: str) -> mx.array:
    module: mx.array = dict(model.named_modules())[path.removesuffix(".weight")].weight
    return module
