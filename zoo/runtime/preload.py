"""The BLAS that serves matrix products on the CPU: the fastest of this machine, loaded before MLX.

On Linux, MLX's CPU backend brings a reference BLAS on one thread; an optimised one whose `cblas_sgemm` is loaded
globally before `mlx.core` replaces it. Imports no mlx, so that `import zoo` can do just that.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_blas = "not looked for"


def preload_blas(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Load MKL or OpenBLAS globally on Linux, before `mlx.core` is imported; gives what `blas()` will say.

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
        _blas = _load_mkl() or _load_openblas() or "MLX's own"
    return _blas


def _load_mkl() -> str | None:
    folder = Path(sys.prefix) / "lib"
    libraries = sorted(folder.glob("libmkl_rt.so.*"))
    if not libraries:
        return None
    try:
        if (folder / "libiomp5.so").exists():
            ctypes.CDLL(str(folder / "libiomp5.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(libraries[-1]), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return "MKL"


def _load_openblas() -> str | None:
    try:
        ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return "OpenBLAS"


def blas() -> str:
    """Which BLAS serves matrix products on the CPU."""
    return _blas
