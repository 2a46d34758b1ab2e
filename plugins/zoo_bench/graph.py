"""The graph of one decode step, counted as a GPU would run it: operations, kernels, and the host's time to build it.

On a machine without a GPU the process pretends to have one: the zoo takes its forms for a GPU, dtypes stay as they are in the
files, and each function of `mx.fast` is one kernel, as are the two that mlx-lm wrote for Metal (the states of Mamba-2 and of the
gated delta rule). Nothing of a counted step is computed.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from statistics import median
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.runtime import device
from zoo_bench.engine import BenchmarkEngine

STEPS = 32  # of which the host's time is the median
# Primitives that describe the same memory in another way. A reshape of an array with gaps copies; it is not counted.
VIEWS = {
    *(
        "AsStrided",
        "Broadcast",
        "BroadcastAxes",
        "Contiguous",
        "Depends",
        "ExpandDims",
        "Flatten",
        "Reshape",
        "Slice",
    ),
    *("NumberOfElements", "Split", "Squeeze", "StopGradient", "Transpose", "Unflatten", "View"),
}
NODE = re.compile(r'^\{ (\d+) \[label ="(\w+)", shape=rectangle\]; \}$', re.MULTILINE)


def count(*arrays: mx.array) -> dict[str, int]:
    """The `operations` and `kernels` that compute these arrays from those that are computed already.

    An operation is a primitive of MLX's graph. A kernel is a primitive that is no view; a concatenation is one for each
    input, what `mx.compile` has fused is one.
    """
    drawn = io.StringIO()
    mx.export_to_dot(drawn, *arrays)
    text = drawn.getvalue()
    names = [name for _, name in NODE.findall(text) if name != "Depends"]
    joins = [node for node, name in NODE.findall(text) if name == "Concatenate"]
    inputs = sum(len(re.findall(rf'^"\w+" -> {node}$', text, re.MULTILINE)) for node in joins)
    kernels = sum(name not in VIEWS for name in names) - len(joins) + inputs
    return {"operations": len(names), "kernels": kernels}


def graph(engine: BenchmarkEngine) -> dict[str, float]:
    """The operations and kernels of one step after 4 tokens, and the seconds of the host to build it."""
    with _computable():
        build, states = engine.step()
        # Nothing but the caches is computed of the prompt.
        mx.eval(*states([]))
    counts: dict[str, int] = {}
    taken = []
    for number in range(STEPS):
        ids = mx.array([[5]])
        began = time.perf_counter()
        arrays = build(ids)
        taken.append(time.perf_counter() - began)
        if number == 0:
            found = (array for _, array in tree_flatten(states(list(arrays))))
            counts = count(*(array for array in found if isinstance(array, mx.array)))
    return {"graph_seconds": median(taken[1:]), **counts}


@contextmanager
def _computable() -> Iterator[None]:
    """A context in which the graph can be computed by the CPU: nothing is fused, and few-expert products are in float32."""
    if mx.default_device().type == mx.DeviceType.gpu:
        yield
        return
    multiply = mx.gather_mm

    def wide(a: mx.array, b: mx.array, *inputs: Any, **settings: Any) -> mx.array:
        return multiply(a.astype(mx.float32), b.astype(mx.float32), *inputs, **settings).astype(a.dtype)

    mx.disable_compile()
    mx.gather_mm = wide
    try:
        yield
    finally:
        mx.gather_mm = multiply
        mx.enable_compile()


def pretend_gpu() -> None:
    """From here on this process builds graphs as on a GPU. For processes that count and compute nothing else."""
    if runtime.on_gpu():
        return
    device.on_gpu = runtime.on_gpu = lambda: True  # type: ignore[assignment]
    for name in ("rms_norm", "layer_norm", "rope"):
        setattr(mx.fast, name, _one_kernel)
    mx.fast.scaled_dot_product_attention = _attention
    if find_spec("mlx_lm"):
        from mlx_lm.models import gated_delta, ssm

        metal = SimpleNamespace(is_available=lambda: True)
        on_metal = SimpleNamespace(**vars(mx) | {"default_device": lambda: mx.gpu, "metal": metal})
        for module in (gated_delta, ssm):
            vars(module)["mx"] = on_metal
            for name in vars(module):
                if name.startswith(("_gated_delta_kernel", "_ssm_kernel")) and getattr(module, name) is None:
                    setattr(module, name, _metal_kernel)


def _one_kernel(x: mx.array, *inputs: Any, **settings: Any) -> mx.array:
    """One kernel that reads x and these inputs, and gives an array like x."""
    read = [array for array in (*inputs, *settings.values()) if isinstance(array, mx.array)]
    return mx.erf(mx.depends(x, read) if read else x)


def _attention(queries: mx.array, keys: mx.array, values: mx.array, **settings: Any) -> mx.array:
    """One kernel that gives an array of the shape of an attention's output."""
    y = _one_kernel(queries, keys, values, **settings)
    shape = (*queries.shape[:-1], values.shape[-1])
    return y if y.shape == shape else mx.broadcast_to(y[..., :1], shape)


def _metal_kernel(
    inputs: list[Any], output_shapes: list[Any], output_dtypes: list[Any], **settings: Any
) -> list[mx.array]:
    """One kernel that reads the inputs and gives arrays of these shapes."""
    arrays = [_zeros(tuple(shape), dtype) for shape, dtype in zip(output_shapes, output_dtypes, strict=True)]
    return mx.depends(arrays, [_one_kernel(*inputs)])


@cache
def _zeros(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    zeros = mx.zeros(shape, dtype)
    mx.eval(zeros)
    return zeros
