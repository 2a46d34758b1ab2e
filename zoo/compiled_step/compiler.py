"""Compilation of modules to functions, by their classes, and of linear layers to products.

A step has one token a row, whose vectors are (B, D) here and (B, 1, D) in the blocks: a product of two axes needs no
reshaping. Axes: B batch, D width, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, TypeVar

import mlx.core as mx
import mlx.nn as nn

from zoo import runtime
from zoo.blocks.quantized import FLOATS, DequantizableLayer, QuantizedLinear, quantize_arguments

Function = Callable[..., Any]
Made = TypeVar("Made")
Compile = Callable[["StepCompiler", Any], "Function | None"]

PACKED = (nn.QuantizedLinear, QuantizedLinear)

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
    return isinstance(module, base) and all(
        getattr(type(module), name) is getattr(base, name) and name not in vars(module) for name in methods
    )


class StepCompiler:
    """Compiles modules to functions, and records what they were made of: while `current`, both compute the same.

    `joins`: projections of the same vector become one product, of whose arrays the layers' own are then parts.
    """

    def __init__(self, model: nn.Module, joins: bool) -> None:
        self.joins = joins
        self._classes = [(module, type(module)) for module in model.modules()]
        self._arrays: list[tuple[nn.Module, str, mx.array]] = []
        self._shared: dict[Any, Any] = {}

    @property
    def current(self) -> bool:
        """Whether no module was wrapped in another class, or given other numbers, since."""
        return all(type(module) is kind for module, kind in self._classes) and all(
            module[name] is array for module, name, array in self._arrays
        )

    def shared(self, key: Any, make: Callable[[], Made]) -> Made:
        """The result of `make`, called once for all layers that ask for the same `key`."""
        if key not in self._shared:
            self._shared[key] = make()
        found: Made = self._shared[key]
        return found

    def take(self, module: nn.Module, name: str) -> mx.array:
        """An array of a module."""
        array: mx.array = module[name]
        self._arrays.append((module, name, array))
        return array

    def take_all(self, layer: nn.Module) -> dict[str, mx.array]:
        """The arrays that a layer multiplies by, and adds, by their names."""
        return {name: self.take(layer, name) for name in _names(layer)}

    def compile_if_known(self, module: nn.Module) -> Function | None:
        """The function of a module by the form of its class, None where there is none."""
        for base, methods, make in _compilers:
            if has_methods_of(module, base, *methods):
                return make(self, module)
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
        if not self.joins or len({_kind(layer) for layer in layers}) > 1 or _kind(layers[0]) is None:
            return None
        ends = list(accumulate(layer.weight.shape[0] for layer in layers))[:-1]
        arrays = {}
        for name in _names(layers[0]):
            arrays[name] = mx.concatenate([layer[name] for layer in layers])
            mx.eval(arrays[name])
            parts = mx.split(arrays[name], ends)  # the same memory
            mx.eval(parts)
            for layer, part in zip(layers, parts, strict=True):
                layer[name] = part
                self.take(layer, name)
        return product(layers[0], arrays)


def _kind(layer: nn.Module) -> tuple[Any, ...] | None:
    """The properties that linear layers must share to be joined; None for other layers."""
    added = "permutation" in layer or "global_scale" in layer  # what some formats add to packed numbers
    if type(layer) is not nn.Linear and (type(layer) not in PACKED or added):
        return None
    arrays = {name: layer[name] for name in _names(layer)}
    settings = (getattr(layer, name, None) for name in ("group_size", "bits", "mode"))
    return type(layer), *settings, *((name, array.dtype, array.shape[1:]) for name, array in arrays.items())


def _names(layer: nn.Module) -> tuple[str, ...]:
    """The arrays that a linear layer multiplies by, and adds; floats that it keeps are made here, if they were not."""
    floats = isinstance(layer, DequantizableLayer) and layer.kept() is not None
    names = (FLOATS, "bias") if floats else ("weight", "scales", "biases", "bias")
    return tuple(name for name in names if name in layer)


def product(layer: nn.Module, arrays: Mapping[str, mx.array]) -> Function:
    """The function of a linear layer like `layer` with these arrays: (…, I) -> (…, O)."""
    bias = arrays.get("bias")
    if "scales" not in arrays:
        multiply = _dense(arrays.get(FLOATS, arrays.get("weight")), bias)
        return (lambda x: multiply(x).astype(x.dtype)) if FLOATS in arrays else multiply
    how = quantize_arguments(layer)
    multiply_quantized = runtime.quantized_matmul(
        arrays["weight"], arrays["scales"], arrays.get("biases"), how
    )

    def packed(x: mx.array) -> mx.array:
        y = multiply_quantized(x).astype(x.dtype)
        return y if bias is None else y + bias

    return packed


def _dense(weight: mx.array, bias: mx.array | None) -> Function:
    """x Wᵀ + b, (B, I) -> (B, O), or, where so many vectors are multiplied faster as columns, (W xᵀ + b)ᵀ."""
    transposed = weight.T
    mx.eval(transposed)  # once: a step has no transposition of its own
    as_rows = (lambda x: x @ transposed) if bias is None else (lambda x: mx.addmm(bias, x, transposed))
    columns = runtime.as_columns(weight.size)
    if not columns:
        return as_rows
    column = None if bias is None else mx.contiguous(bias[:, None])  # (O, 1)
    mx.eval(column)

    def multiply(x: mx.array) -> mx.array:
        if x.shape[0] not in columns:
            return as_rows(x)
        return (weight @ x.T if column is None else mx.addmm(column, weight, x.T)).T

    return multiply


@compiles(nn.Linear, "__call__")
@compiles(nn.QuantizedLinear, "__call__")
@compiles(QuantizedLinear, "__call__")
def linear(compiler: StepCompiler, layer: nn.Module) -> Function | None:
    """(…, I) -> (…, O)."""
    if _kind(layer) is None:
        return None
    return product(layer, compiler.take_all(layer))
