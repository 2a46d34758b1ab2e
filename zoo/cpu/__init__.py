"""What makes a CPU under Linux fast. On a GPU, and so on a Mac, nothing of this package is imported.

`ZOO_CPU` names the means that are used, separated by commas; without it all are, and with `ZOO_CPU=plain` none. `zoo.runtime`
asks for each of them, and computes by MLX's own functions where one is not used. Results agree up to rounding.

The table has the tokens a second with all means divided by those without the one of the row.

| Means | What it does | SmolLM2 | qwen3 6 × 1024 |
| --- | --- | --- | --- |
| `blas` | a fast BLAS in place of MLX's reference one, loaded before `mlx.core` (`blas.py`, `symbols.py`) | | |
| `vectors` | one row is multiplied by OpenBLAS's `cblas_sgemv` (`vector_products.py`) | | |
| `columns` | a few rows are multiplied as columns (`columns.py`) | | |
| `numpy` | softmax and activations of a prompt by numpy, an expert's rows in one product (`arithmetic.py`) | | |
| `few-operations` | norms, rotations and the attention of one token in few operations (`few_operations.py`) | | |
| `floats` | packed matrices are kept as floats, too, or unpacked for many rows (`floats.py`) | | |
| `streams` | casts, unpacking and products of packed matrices on all cores (`streams.py`) | | |
| `process` | freed memory is kept, and threads take turns on a single core (`process.py`) | | |
"""

from __future__ import annotations

import os


def uses(means: str) -> bool:
    """Whether this process uses these means, a name in the table above."""
    names = os.environ.get("ZOO_CPU")
    return not names or means in names.split(",")
