"""A Mac's GPU, pretended on MLX's CPU: the program takes the ways and the dtypes that it takes on Metal.

`ZOO_PRETEND_GPU=1` asks for it. `pretend()` is to be called after `import zoo` and before the modules of blocks are
imported, which ask the device as they are. No kernel of Metal runs.
"""

import os
import pkgutil
import sys
from pathlib import Path

PRETENDED = os.environ.get("ZOO_PRETEND_GPU") == "1"
if PRETENDED:
    os.environ["MLX_DISABLE_COMPILE"] = "1"  # MLX would call a C++ compiler for each function


def with_wide_sums(multiply):
    """A product of MLX that adds in float32, as Metal does: the CPU adds packed products in 16 bits, or has no such product."""
    import mlx.core as mx

    def wide(array):
        floats = isinstance(array, mx.array) and mx.issubdtype(array.dtype, mx.floating)
        return array.astype(mx.float32) if floats else array

    def multiplied(x, *arrays, **how):
        names = {name: wide(each) if name in ("scales", "biases") else each for name, each in how.items()}
        return multiply(wide(x), *map(wide, arrays), **names).astype(x.dtype)

    return multiplied


def pretend():
    """Make `zoo.runtime` say GPU in this process; no means of `zoo.cpu` can be imported from here on."""
    import mlx.core as mx

    import zoo
    from zoo import machine, runtime
    from zoo.runtime import device

    for module in (device, runtime):
        module.on_gpu = lambda: True
    device.on_metal = lambda: True
    device._recommended = machine.total_memory
    mx.set_wired_limit = lambda limit: 0
    for name in ("gather_mm", "quantized_matmul", "gather_qmm"):
        setattr(mx, name, with_wide_sums(getattr(mx, name)))
    for means in pkgutil.iter_modules([str(Path(zoo.__file__).parent / "cpu")]):
        if means.name != "blas":  # whose name is shown
            sys.modules[f"zoo.cpu.{means.name}"] = None  # an import fails
