"""A Mac's GPU, pretended on MLX's CPU: the program takes the ways and the dtypes that it takes on Metal.

`ZOO_PRETEND_GPU=1` asks for it. `pretend()` is to be called after `import zoo` and before the modules of blocks are
imported, which ask the device as they are. No kernel of Metal runs.
"""

import os
import pkgutil
import sys

PRETENDED = os.environ.get("ZOO_PRETEND_GPU") == "1"
if PRETENDED:
    os.environ["MLX_DISABLE_COMPILE"] = "1"  # MLX would call a C++ compiler for each function


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
    gather_mm = mx.gather_mm

    def gather_mm_of_float32(a, b, *args, **how):
        """`mx.gather_mm`, which MLX's CPU has in float32 alone."""
        wide = (array.astype(mx.float32) for array in (a, b))
        return gather_mm(*wide, *args, **how).astype(a.dtype)

    mx.gather_mm = gather_mm_of_float32
    for means in pkgutil.iter_modules(zoo.cpu.__path__):
        if means.name != "blas":  # whose name is shown
            sys.modules[f"zoo.cpu.{means.name}"] = None  # an import fails
