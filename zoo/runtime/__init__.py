"""The device, and operations in its fastest way. Nothing else in the zoo asks which device this is.

The product is for Metal; on Linux MLX computes on the CPU or by CUDA. What must work without mlx is in `zoo.machine`.
"""

from zoo.machine import blas, total_memory
from zoo.runtime.device import (
    DTYPES,
    active_memory,
    assign_streams,
    backend,
    check_not_forked,
    compute_dtype,
    dequantized_dtype,
    evaluates_by_layer,
    evaluates_in_background,
    has_fused_kernels,
    joins_projections,
    keeps_floats,
    machine,
    multiplies_floats,
    on_gpu,
    on_stream,
    peak_memory,
    prefill_chunk,
    release_memory,
    set_up_device,
    speed_advice,
    synchronize,
    threads,
    unwire_memory,
    versions,
)
from zoo.runtime.operations import (
    QuantizeArguments,
    attention,
    column_major_copy,
    dequantize,
    eager,
    elementwise,
    fused,
    gather_matmul,
    mean_matrix,
    once_a_pass,
    prefers_column_major,
    prefers_columns,
    quantized_matmul,
    rms_norm,
    rms_normed,
    row_groups,
)
