"""Finds where the inputs of linear layers can be scaled without changing what a model computes.

If every input of some layers is divided by a number, and their weights for this input are multiplied by it, their outputs stay
the same. The division costs nothing where it can be made in the operation before: in the weights of a norm, or in the rows of
another linear layer. Names do not say where that is so: each norm and each linear layer of a model's layer is tried. What it
scales is seen by running the layer, and used only if the outputs of the layer then stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.model import Quantizable
from zoo_calibration.layerwise import Layer
from zoo_calibration.watch import watched

TOLERANCE = 1e-4  # of the range of a layer's output, and of an input's ratio


@dataclass(frozen=True)
class Fold:
    """A scaling of the inputs of the linear layers `after`, made in the module at `before` by `divide`."""

    before: str
    after: tuple[str, ...]
    modules: dict[str, nn.Module]
    divide: Callable[[nn.Module, mx.array], None]

    def apply(self, scales: mx.array) -> None:  # (I,)
        """Divide the outputs of the module before by the scales, and multiply the weights of the layers after by them."""
        self.divide(self.modules[self.before], scales)
        for path in self.after:
            self.modules[path].weight = self.modules[path].weight * scales


def divide_outputs(module: nn.Module, scales: mx.array) -> None:
    """Of a linear layer, or of several stacked ones, (…, O, I) and (…, O); of a norm (O,)."""
    module.weight = module.weight / (scales if module.weight.ndim == 1 else scales[:, None])
    if "bias" in module:
        module.bias = module.bias / scales


def divide_shifted(module: nn.Module, scales: mx.array) -> None:
    """Divide the outputs of a norm that multiplies by 1 + weight."""
    module.weight = (1 + module.weight) / scales - 1


def folds(layer: Layer, modules: dict[str, nn.Module]) -> Iterator[Fold]:
    """The folds of a layer, whose `modules` these are by path; each linear layer is after at most one."""
    used = Counter(id(module) for module in modules.values())
    own = {path: module for path, module in modules.items() if path.startswith(f"{layer.path}.")}
    own = {path: module for path, module in own.items() if used[id(module)] == 1 and "weight" in module}
    linears = {
        path: m for path, m in own.items() if isinstance(m, Quantizable) and not isinstance(m, nn.Embedding)
    }
    norms = {path: m for path, m in own.items() if m.weight.ndim == 1}
    taken: set[str] = set()
    for path, module in {**norms, **linears}.items():
        width = module.weight.shape[0] if path in norms else module.weight.shape[-2]
        fitting = {
            p: m for p, m in linears.items() if m.weight.shape[-1] == width and p not in taken and p != path
        }
        for divide in (divide_outputs, divide_shifted)[: 2 if path in norms else 1] if fitting else ():
            if after := _scaled(layer, module, fitting, divide):
                fold = Fold(path, after, own, divide)
                if _changes_nothing(layer, fold):
                    taken.update(after)
                    yield fold
                break


def _trial(width: int) -> mx.array:  # (I,)
    """Scales to try: powers of two, by which floats are divided exactly."""
    return 2.0 ** mx.random.randint(-1, 2, (width,), key=mx.random.key(0)).astype(mx.float32)


def _scaled(
    layer: Layer, module: nn.Module, fitting: dict[str, nn.Module], divide: Callable[..., None]
) -> tuple[str, ...]:
    """The linear layers whose every input is divided when the outputs of the module are."""
    scales = _trial(next(iter(fitting.values())).weight.shape[-1])
    before = _sizes(layer, fitting)
    with _restored(module):
        divide(module, scales)
        after = _sizes(layer, fitting)
    return tuple(
        path
        for path in before
        if path in after and mx.allclose(after[path] * scales, before[path], rtol=TOLERANCE, atol=0).item()
    )


def _sizes(layer: Layer, linears: dict[str, nn.Module]) -> dict[str, mx.array]:
    """The sums of the sizes of the inputs of each linear layer, (I,), over all stacked matrices."""
    with watched(linears) as sums:
        layer.run(0)
    return {path: found.size.reshape(-1, found.size.shape[-1]).sum(axis=0) for path, found in sums.items()}


def _changes_nothing(layer: Layer, fold: Fold) -> bool:
    """Whether the layer gives the same with scales as without."""
    expected = layer.run(0)
    with _restored(fold.modules[fold.before], *(fold.modules[path] for path in fold.after)):
        fold.apply(_trial(fold.modules[fold.after[0]].weight.shape[-1]))
        found = layer.run(0)
    if not isinstance(expected, mx.array):
        return False
    scale = mx.abs(expected).max()
    return bool((mx.abs(found - expected).max() <= TOLERANCE * scale).item())


class _restored:
    """Gives modules their arrays back at the end of a block."""

    def __init__(self, *modules: nn.Module) -> None:
        self.kept = [(module, dict(module)) for module in modules]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        for module, arrays in self.kept:
            module.update(arrays)
