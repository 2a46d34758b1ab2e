"""The BLAS library that multiplies matrices on a CPU under Linux. Imports no mlx.

MLX's CPU backend has a reference BLAS that runs on one thread. A faster BLAS replaces it if its `cblas_sgemm` is loaded globally
before `mlx.core`, so `import zoo` loads one: OpenBLAS of the package scipy-openblas32, or MKL, which the extra `fast` installs.
Where both are installed, it loads MKL on Intel's processors and OpenBLAS on others.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from zoo import cpu
from zoo.cpu.symbols import address, define
from zoo.cpu.vector_products import sgemm
from zoo.machine import processors, ranks_here

PREFIX = "scipy_"  # of the functions in scipy-openblas32
# What MLX calls: products of matrices, and LAPACK's functions for `mx.linalg`.
FUNCTIONS = (
    *("cblas_sgemm", "cblas_dgemm", "cblas_cgemm"),
    *(kind + name for kind in "sd" for name in ("geev_", "geqrf_", "gesdd_", "getrf_", "getri_", "orgqr_", "potrf_", "syevd_", "trtri_")),
    *("cgeev_", "cgesdd_", "cheevd_"),
)  # fmt: skip
# Environment variables that bound the threads of a BLAS, and are read when it is loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_blas = "not looked for"


def preload_blas(environ: dict[str, str] | os._Environ[str] = os.environ) -> str:
    """Load a fast BLAS globally, before `mlx.core` is imported; returns the value of `blas()`.

    `ZOO_BLAS=MKL` and `ZOO_BLAS=OpenBLAS` take that library, if it is installed, also in small letters; any other name, `none`
    for example, keeps MLX's.
    """
    global _blas
    given = environ.get("ZOO_BLAS", "")
    names = [name for name in LOADERS if name.lower() == given.lower()]
    if given and not names:
        _blas = f"MLX's own (ZOO_BLAS={given})"
    elif not cpu.uses("blas"):
        _blas = f"MLX's own (ZOO_CPU={os.environ['ZOO_CPU']})"
    elif "mlx.core" in sys.modules:
        _blas = "MLX's own: mlx was imported before zoo, too late to load a faster one"
    else:
        limit_threads(environ)
        missing = f"MLX's own (ZOO_BLAS={given}, which is not installed)" if given else "MLX's own"
        _blas = next((name for name in names or by_processor() if LOADERS[name]()), missing)
    return _blas


def limit_threads(environ: dict[str, str] | os._Environ[str]) -> None:
    """If this machine has several ranks, limit the threads of a BLAS to a rank's share of the processors, unless `THREADS` do."""
    if ranks_here(environ) > 1 and not any(name in environ for name in THREADS):
        environ["OMP_NUM_THREADS"] = str(processors(environ))


def by_processor(cpuinfo: str = "/proc/cpuinfo") -> list[str]:
    """The names of the libraries in the order in which they are tried: MKL first on Intel's processors, else OpenBLAS.

    On processors of AMD's, OpenBLAS was the faster one in all measurements.
    """
    with suppress(OSError), open(cpuinfo, encoding="utf-8", errors="replace") as lines:
        if any("GenuineIntel" in line for line in islice(lines, 10)):
            return ["MKL", "OpenBLAS"]
    return ["OpenBLAS", "MKL"]


def _load_mkl() -> bool:
    """Load MKL, with its threads, from this environment; returns whether it is there."""
    folder = Path(sys.prefix) / "lib"
    mkl = sorted(folder.glob("libmkl_rt.so.*"))[-1:]
    return bool(mkl) and _load_globally(*map(str, (*folder.glob("libiomp5.so"), *mkl)))


def _load_openblas() -> bool:
    """Load OpenBLAS of the package scipy-openblas32, else the system's; returns whether there is one."""
    found = find_spec("scipy_openblas32")
    if found is not None and found.origin is not None:
        try:
            library = ctypes.CDLL(str(Path(found.origin).parent / "lib" / "libscipy_openblas.so"))
            addresses = {name: address(library, PREFIX + name) for name in FUNCTIONS}
            if cpu.uses("vectors"):
                gemv = address(library, PREFIX + "cblas_sgemv")
                addresses["cblas_sgemm"] = sgemm(addresses["cblas_sgemm"], gemv)
            define(addresses)
            return True
        except (OSError, AttributeError):  # of another version or machine
            pass
    return _load_globally("libopenblas.so.0")


LOADERS: dict[str, Callable[[], bool]] = {"MKL": _load_mkl, "OpenBLAS": _load_openblas}


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


def blas_advice() -> list[str]:
    """Advice to have a fast BLAS, one line each."""
    if "too late" in _blas:
        return ["import zoo before mlx, so that a fast BLAS can be loaded"]
    if variable := next((name for name in ("ZOO_BLAS", "ZOO_CPU") if name in _blas), None):
        return [f"unset {variable}, so that a fast BLAS is loaded where one is installed"]
    if _blas.startswith("MLX"):
        return [f"{_installing('scipy-openblas32')}: a fast BLAS for matrix products"]
    return []


def _installing(package: str) -> str:
    """The command that installs a package into this zoo's environment, by pip or uv."""
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install -p {sys.executable}"
    return f"`{pip} {package}`"
