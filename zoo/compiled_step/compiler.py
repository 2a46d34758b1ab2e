"""Compilation of modules to functions, by their classes, and of linear layers to products.

A step has one token a row, whose vectors are (B, D) here and (B, 1, D) in the blocks: a product of two axes needs no
reshaping. Axes: B batch, D width, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import local
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.joined import joined_arrays, kind, multiplied
from zoo.blocks.quantized import FLOATS, DequantizableLayer, QuantizedLinear, quantize_arguments
from zoo.blocks.ranked import Connected

Function = Callable[..., Any]
Key = tuple[int, str]  # of a module's array: the module's identity, and the array's name
T = TypeVar("T")
Compile = Callable[["StepCompiler", Any], "Function | None"]

_compilers: list[tuple[type, tuple[str, ...], Compile]] = []


def compiles(base: type, *methods: str) -> Callable[[Compile], Compile]:
    """Register what makes functions of modules of `base` and its subclasses, as long as these keep its `methods`.

    It returns None for a module that has to run as it is.
    """

    def register(make: Compile) -> Compile:
        _compilers.append((base, methods, make))
        return make

    return register


def has_methods_of(module: Any, base: type, *methods: str) -> bool:
    """Whether a module is of `base`, or of a subclass, with its `methods` unchanged."""
    own = type(module).whole_class if isinstance(module, Connected) else type(module)
    return isinstance(module, base) and all(
        getattr(own, name) is getattr(base, name) and name not in vars(module) for name in methods
    )


class Positions(local):
    """`next`: the position of each row's token in the step of this thread, a number or (B,), one object for all layers."""

    next: int | mx.array = 0


class StepCompiler:
    """Compiles modules to functions, and records what they were made of: while `current`, both compute the same.

    `joins`: projections of the same vector become one product, of whose arrays the layers' own are then parts.
    """

    def __init__(self, model: nn.Module, joins: bool) -> None:
        self.joins, self.positions = joins, Positions()
        self._classes = [(module, type(module)) for module in model.modules()]
        self._parts = [
            (module, name, part)
            for module, _ in self._classes
            for name, part in module.items()
            if isinstance(part, nn.Module)
        ]
        self._arrays: dict[Key, tuple[nn.Module, str, mx.array]] = {}
        self._shared: dict[Any, Any] = {}

    @property
    def current(self) -> bool:
        """Whether no module was wrapped in another class, given other parts or other numbers since."""
        return all(type(module) is kind for module, kind in self._classes) and all(
            module.get(name) is part for module, name, part in (*self._parts, *self._arrays.values())
        )

    def shared(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make`, called once for all layers that ask for the same `key`."""
        if key not in self._shared:
            self._shared[key] = make()
        result: T = self._shared[key]
        return result

    def take(self, module: nn.Module, name: str) -> mx.array:
        """An array of a module."""
        array: mx.array = module[name]
        self._arrays[id(module), name] = module, name, array
        return array

    def take_all(self, layer: nn.Module) -> dict[str, mx.array]:
        """The arrays that a layer multiplies by, and adds, by their names."""
        if isinstance(layer, DequantizableLayer):
            layer.kept()
        return {name: self.take(layer, name) for name in multiplied(layer)}

    def compile_if_known(self, module: nn.Module) -> Function | None:
        """The compiled function of a module; None where nothing is registered for its class."""
        for base, methods, make in _compilers:
            if has_methods_of(module, base, *methods):
                return connected(make(self, module), module)
        return None

    def compile(self, module: nn.Module) -> Function:
        """The function of a module whose first argument are the tokens' vectors, (B, D)."""
        found = self.compile_if_known(module)
        if found is not None:
            return found

        def as_it_is(x: mx.array, *more: Any) -> mx.array:
            return mx.squeeze(module(mx.expand_dims(x, 1), *more), 1)

        return as_it_is

    def joined(self, *layers: nn.Module) -> Function | None:
        """The outputs of linear layers side by side, (…, I) -> (…, ΣO), as one product; None where they cannot be joined."""
        arrays = joined_arrays(*layers) if self.joins else None
        if arrays is None:
            return None
        mx.eval(arrays, [self.take_all(layer) for layer in layers])
        return product(layers[0], arrays)

    def product(self, layer: nn.Module, bias: mx.array | None = None) -> Function:
        """The product with the matrix of a linear layer or a table: (…, I) -> (…, O). `bias` is used if the layer has none."""
        arrays = self.take_all(layer)
        return product(layer, arrays if bias is None else {"bias": bias, **arrays})


class Accumulating:
    """A function that can add its output to a residual in the operation that computes it, a product."""

    def __init__(self, function: Function) -> None:
        """`function(x, *inputs, residual=None)` gives its output, or the sum of `residual` and its output."""
        self.function = function

    def __call__(self, x: mx.array, *inputs: Any) -> mx.array:
        y: mx.array = self.function(x, *inputs)
        return y

    def add_to(self, residual: mx.array, x: mx.array, *inputs: Any) -> mx.array:
        """The residual plus the output of the function."""
        y: mx.array = self.function(x, *inputs, residual=residual)
        return y


def chained(first: Function, last: Function) -> Function:
    """A function that calls `first`, then `last` with the output of `first`. It is `Accumulating` if `last` is."""
    if not isinstance(last, Accumulating):
        return lambda *inputs: last(first(*inputs))
    multiply = last.function
    return Accumulating(lambda *inputs, residual=None: multiply(first(*inputs), residual=residual))


def adding(part: Function) -> Function:
    """A function of a residual and the inputs of a part. It returns the residual plus the output of the part."""
    if isinstance(part, Accumulating):
        return part.add_to
    return lambda residual, *inputs: residual + part(*inputs)


def connected(function: Function | None, module: nn.Module) -> Function | None:
    """The function of a module, with the exchanges between ranks before and after it."""
    if function is None or not isinstance(module, Connected):
        return function
    before, after = type(module).before, type(module).after

    def call(x: mx.array, *inputs: Any) -> Any:
        y = function(x if before is None else before(x), *inputs)
        return y if after is None else after(y)

    return call


def product(layer: nn.Module, arrays: Mapping[str, mx.array]) -> Function:
    """The function of a linear layer like `layer` with these arrays: (…, I) -> (…, O).

    If there is no bias, it can add a residual (B, O) in its place.
    """
    bias = arrays.get("bias")
    if "scales" not in arrays:
        multiply = runtime.step.product(arrays[multiplied(layer)[0]], bias)
        if FLOATS in arrays:  # in float32: the output has the dtype of x
            return _accumulating(lambda x, residual=None: multiply(x, residual).astype(x.dtype), bias)
        return _accumulating(multiply, bias)
    how = quantize_arguments(layer)
    multiply_quantized = runtime.quantized_matmul(
        arrays["weight"], arrays["scales"], arrays.get("biases"), how
    )

    def packed(x: mx.array) -> mx.array:
        y = multiply_quantized(x).astype(x.dtype)
        return y if bias is None else y + bias

    return packed


def _accumulating(multiply: Function, bias: mx.array | None) -> Function:
    """A product that can add a residual in the place of a bias, where that is faster."""
    return multiply if bias is not None or runtime.has_fused_kernels() else Accumulating(multiply)


@compiles(nn.Linear, "__call__")
@compiles(nn.QuantizedLinear, "__call__")
@compiles(QuantizedLinear, "__call__")
def linear(compiler: StepCompiler, layer: nn.Module) -> Function | None:
    """(…, I) -> (…, O)."""
    if kind(layer) is None:
        return None
    return compiler.product(layer)
