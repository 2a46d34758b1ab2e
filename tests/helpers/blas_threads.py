"""Imported before mlx: where each core has a test process of its own, a BLAS with a thread a core only waits for them."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
