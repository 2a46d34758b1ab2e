"""Calls of modules, intercepted by path, and the sums of what linear layers are given.

Axes: N rows, I inputs, O outputs, E stacked matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.inspect.tracing.probe import set_class

# Called with a module's path, its own call, and the arguments; what it returns takes the place of the module's result.
Around = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def intercepted(modules: Mapping[str, nn.Module], around: Around) -> Iterator[None]:
    """Pass every call of these modules through `around` within the block."""
    kinds = {path: type(module) for path, module in modules.items()}

    def call(path: str, module: nn.Module, *args: Any, **options: Any) -> Any:
        return around(path, partial(kinds[path].__call__, module), args, options)

    try:
        for path, module in modules.items():
            kind = kinds[path]
            own = {"__call__": lambda self, *args, _path=path, **options: call(_path, self, *args, **options)}
            set_class(module, type(kind.__name__, (kind,), own | {"__module__": kind.__module__}))
        yield
    finally:
        for path, module in modules.items():
            set_class(module, kinds[path])


class InputSums:
    """Sums over the rows x that a linear layer was given: `gram` Σ x xᵀ (I, I), `size` Σ |x| (I,), and the `rows`.

    A layer of stacked matrices has one of each for every matrix: (E, I, I), (E, I), (E,).
    """

    def __init__(self, weight: mx.array) -> None:
        *stack, _, inputs = weight.shape
        self.gram = mx.zeros((*stack, inputs, inputs))
        self.size = mx.zeros((*stack, inputs))
        self.rows = mx.zeros(stack)

    def add(self, x: mx.array, indices: mx.array | None = None) -> None:
        """Add the rows of x (…, I); of x (…, 1, I), each to the matrix that `indices` (…) names."""
        x = x.astype(mx.float32)
        if self.gram.ndim == 2:
            rows = x.reshape(-1, x.shape[-1])  # (N, I)
            self._add(..., rows)
        elif indices is None:  # (B, E or 1, T, I): every matrix has rows of its own
            each = mx.broadcast_to(x, (x.shape[0], self.gram.shape[0], *x.shape[2:]))
            for index in range(self.gram.shape[0]):
                self._add(index, each[:, index].reshape(-1, x.shape[-1]))
        else:
            rows = mx.broadcast_to(x.squeeze(-2), (*indices.shape, x.shape[-1])).reshape(-1, x.shape[-1])
            chosen = indices.reshape(-1).tolist()
            places: dict[int, list[int]] = {}
            for row, index in enumerate(chosen):
                places.setdefault(index, []).append(row)
            for index, own in places.items():
                self._add(index, rows[mx.array(own)])
        mx.eval(self.gram, self.size, self.rows)

    def divide(self, scales: mx.array) -> None:  # (I,)
        """The sums of the rows divided by `scales`."""
        self.gram = self.gram / (scales[:, None] * scales)
        self.size = self.size / scales
        mx.eval(self.gram, self.size)

    def _add(self, index: Any, rows: mx.array) -> None:  # (N, I)
        self.gram[index] += rows.T @ rows
        self.size[index] += mx.abs(rows).sum(axis=0)
        self.rows[index] += rows.shape[0]


@contextmanager
def watched(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, InputSums]]:
    """The sums of what each layer is given within the block, by path; layers that are not called have none."""
    sums: dict[str, InputSums] = {}

    def around(path: str, own: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if path not in sums:
            sums[path] = InputSums(layers[path].weight)
        indexed = len(args) > 1 and isinstance(args[1], mx.array)
        sums[path].add(args[0], args[1] if indexed else None)
        return own(*args, **options)

    with intercepted(layers, around):
        yield sums
