"""The device, and operations in its fastest way. Nothing else in the zoo asks which device this is.

The product is for Metal; on Linux MLX computes by CUDA or on the CPU, which `zoo.cpu` makes fast. What must work without mlx is in
`zoo.machine`. `step` has the operations of a compiled step.
"""

from zoo.machine import threads, total_memory
from zoo.runtime import step
from zoo.runtime.device import (
    DTYPES,
    active_memory,
    backend,
    blas,
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
    peak_memory,
    prefill_chunk,
    release_memory,
    set_up_device,
    speed_advice,
    synchronize,
    usable_memory,
    versions,
    wired_memory,
)
from zoo.runtime.operations import (
    QuantizeArguments,
    attention,
    dequantize,
    eager,
    elementwise,
    fused,
    gather_matmul,
    grouped_matmul,
    import_operations,
    quantized_matmul,
    rms_norm,
    rotate_halves,
    store_matrix,
)
