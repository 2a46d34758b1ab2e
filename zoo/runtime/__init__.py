"""The device, and operations in its fastest way. Nothing else in the zoo asks which device this is.

The product is for Metal; on Linux MLX computes on the CPU or by CUDA. Imports no mlx at module level, so that `import zoo`
can load a faster BLAS first.
"""

from zoo.runtime.device import (
    DTYPES,
    advice,
    backend,
    by_layer,
    check_process,
    compute_dtype,
    dequantized_dtype,
    give_back,
    has_kernels,
    joins,
    keeps_floats,
    machine,
    multiplies_floats,
    on,
    on_gpu,
    peak_memory,
    prefill_chunk,
    prepare,
    side_by_side,
    side_streams,
    threads,
    total_memory,
    versions,
    wait,
)
from zoo.runtime.operations import (
    as_columns,
    attention,
    dequantize,
    eager,
    elementwise,
    evaluates,
    fused,
    gather_matmul,
    quantized_matmul,
    row_groups,
)
from zoo.runtime.preload import blas, preload_blas
