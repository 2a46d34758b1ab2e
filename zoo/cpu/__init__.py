"""What makes a CPU under Linux fast. On a GPU, and so on a Mac, nothing of this package is imported.

`ZOO_CPU` names the means that are used, separated by commas; without it all are, and with `ZOO_CPU=plain` none. `zoo.runtime`
asks for each of them, and computes by MLX's own functions where one is not used. Results agree up to rounding.

The table has the tokens a second with all means divided by those without the one of the row: one text written / a prompt of 256
tokens read / eight texts written at once. SmolLM2 135M is a GGUF file in 4 bits, qwen3 a random model in float32. Two cores with
AVX-512 and MLX 0.32.4, two alternating rounds; `streams` was measured without `floats`, which leaves it nothing to do.

| Means | What it does | SmolLM2 | qwen3 6 × 1024 |
| --- | --- | --- | --- |
| `blas` | a fast BLAS in place of MLX's reference one, loaded before `mlx.core` (`blas.py`, `symbols.py`) | 5.2 / 32 / 11 | 8.1 / 43 / 22 |
| `vectors` | one row is multiplied by OpenBLAS's `cblas_sgemv` (`vector_products.py`) | 1.64 / 1.04 / 1.03 | 2.00 / 1.06 / 0.98 |
| `numpy` | softmax and activations of a prompt by numpy, an expert's rows in one product (`arithmetic.py`) | 1.01 / 1.96 / 1.02 | 1.00 / 1.65 / 0.98 |
| `few-operations` | norms, rotations and the attention of one token in few operations (`few_operations.py`) | 1.21 / 1.10 / 1.08 | 1.03 / 0.99 / 0.98 |
| `floats` | packed matrices are kept as floats, too, or unpacked for many rows (`floats.py`) | 1.56 / 20 / 4.3 | none are packed |
| `streams` | products of packed matrices on all cores (`streams.py`) | 1.50 / 1.69 / 1.84 | none are packed |
"""

from __future__ import annotations

import os


def uses(means: str) -> bool:
    """Whether this process uses these means, a name in the table above."""
    names = os.environ.get("ZOO_CPU")
    return not names or means in names.split(",")
