"""Activation functions by the recipe's names.

Written out, not taken from mlx.nn: its own are compiled, and the CPU backend compiles by calling the C++
compiler, at the first use of each. `runtime.fused` compiles them where that is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx

from zoo import runtime


def gelu(x: mx.array) -> mx.array:
    """x · Φ(x), exactly (Hendrycks and Gimpel, 2016)."""
    return x * (1 + mx.erf(x * math.sqrt(0.5))) * 0.5


def gelu_tanh(x: mx.array) -> mx.array:
    """The tanh approximation of gelu, GPT-2's (Hendrycks and Gimpel, 2016, section 2), in half of the operations.

    It is ½ x (1 + tanh z) with z = √(2/π) (x + 0.044715 x³), and ½ (1 + tanh z) = σ(2z).
    """
    slope = math.sqrt(8 / math.pi)
    return x * mx.sigmoid(x * (slope + 0.044715 * slope * mx.square(x)))


def quick_gelu(x: mx.array) -> mx.array:
    """x · σ(1.702 x), the sigmoid approximation of gelu (same section)."""
    return x * mx.sigmoid(1.702 * x)


def silu(x: mx.array) -> mx.array:
    """x · σ(x), also called swish (Elfwing et al., 2017)."""
    return x * mx.sigmoid(x)


def relu(x: mx.array) -> mx.array:
    """max(x, 0)."""
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    """max(x, 0)² (So et al., 2021)."""
    return mx.square(mx.maximum(x, 0))


_FUNCTIONS = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": silu,
    "relu": relu,
    "relu2": relu2,
    "tanh": mx.tanh,
    "sigmoid": mx.sigmoid,
}


def activation(name: str) -> Callable[[mx.array], mx.array]:
    """The function of that name, elementwise on any shape."""
    return runtime.elementwise(_FUNCTIONS[name], name)
