"""The machine: its memory, and the BLAS that serves matrix products on the CPU. Imports no mlx.

On Linux, MLX's CPU backend brings a reference BLAS on one thread. An optimised one whose `cblas_sgemm` is loaded globally
before `mlx.core` replaces it, so `import zoo` loads the fastest one of this machine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_blas = "not looked for"


def preload_blas(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Load MKL or OpenBLAS globally on Linux, before `mlx.core` is imported; returns what `blas()` then says.

    `ZOO_BLAS=none` leaves MLX's own.
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
    """Load shared libraries, whose functions precede those of libraries loaded later; returns whether that worked."""
    try:
        for library in libraries:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def blas() -> str:
    """Which BLAS serves matrix products on the CPU."""
    return _blas


def total_memory() -> int | None:
    """Bytes of memory in the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
