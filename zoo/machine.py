"""The machine's memory, and the BLAS library that multiplies matrices on the CPU. Imports no mlx.

On Linux, MLX's CPU backend has a reference BLAS that runs on one thread. A faster BLAS replaces it if its `cblas_sgemm` is
loaded globally before `mlx.core`, so `import zoo` loads the fastest one installed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_blas = "not looked for"


def preload_blas(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Load MKL or OpenBLAS globally on Linux, before `mlx.core` is imported; returns the value of `blas()`.

    `ZOO_BLAS=none` keeps MLX's own.
    """
    global _blas
    if sys.platform != "linux":
        _blas = "Accelerate" if sys.platform == "darwin" else "MLX's own"
    elif environ.get("ZOO_BLAS") == "none":
        _blas = "MLX's own (ZOO_BLAS=none)"
    elif "mlx.core" in sys.modules:
        _blas = "MLX's own: mlx was imported before zoo, too late to load a faster one"
    else:
        folder = Path(sys.prefix) / "lib"
        mkl = [*folder.glob("libiomp5.so"), *sorted(folder.glob("libmkl_rt.so.*"))[-1:]]
        if any("mkl" in library.name for library in mkl) and _load_globally(*map(str, mkl)):
            _blas = "MKL"
        else:
            _blas = "OpenBLAS" if _load_globally("libopenblas.so.0") else "MLX's own"
    return _blas


def _load_globally(*libraries: str) -> bool:
    """Load shared libraries so that their functions replace those of libraries loaded later; returns whether it worked."""
    try:
        for library in libraries:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def blas() -> str:
    """The name of the BLAS that multiplies matrices on the CPU."""
    return _blas


def total_memory() -> int | None:
    """Bytes of memory in the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
