"""The device: its backend, dtypes, streams and memory, and which of two ways to compute is faster on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import mlx.core as mx

from zoo.errors import ZooError
from zoo.machine import total_memory

MOST_JOINED = 2**30  # bytes of a model; in larger ones reading a matrix dominates its product on a CPU


@cache
def on_gpu() -> bool:
    """Whether MLX's default device is a GPU."""
    return mx.default_device().type == mx.DeviceType.gpu


def cpu_uses(means: str) -> bool:
    """Whether this device is a CPU that uses these means of `zoo.cpu`. Nothing else asks that package."""
    if on_gpu():
        return False
    from zoo import cpu

    return cpu.uses(means)


def backend() -> str:
    """ "Metal", "CUDA" or "CPU"."""
    if not on_gpu():
        return "CPU"
    return "Metal" if on_metal() else "CUDA"


DTYPES = ("float32", "float16", "bfloat16")


def compute_dtype(asked: str | None = None) -> Any:
    """The dtype that floats are cast to; None keeps the checkpoint's. On the CPU float32 is fastest by far."""
    if asked is None:
        return None if on_gpu() else mx.float32
    if asked not in DTYPES:
        raise ZooError(f"dtype {asked!r} is not one of {', '.join(DTYPES)}")
    return getattr(mx, asked)


def dequantized_dtype() -> Any:
    """The dtype of a quantized file's floats: float32 on a CPU; on a GPU bfloat16, whose range no activation exceeds."""
    return mx.bfloat16 if on_gpu() else mx.float32


def has_fused_kernels() -> bool:
    """Whether norms, rotary positions and attention are one kernel each rather than several operations."""
    return on_gpu()


def evaluates_in_background() -> bool:
    """Whether `mx.async_eval` returns while a pass is computed. The CPU backend lets a few operations wait, and no more."""
    return on_gpu()


def joins_projections(nbytes: int) -> bool:
    """Whether a model of `nbytes` decodes faster if projections of the same vector are joined in one product.

    A GPU saves kernels at any size. The layers' own matrices become parts of the joined one: no memory is needed twice.
    """
    return on_gpu() or nbytes <= MOST_JOINED


def keeps_floats(nbytes: int) -> bool:
    """Whether to keep a float copy, of `nbytes`, of packed matrices."""
    if not cpu_uses("floats"):
        return False
    from zoo.cpu.floats import keeps_floats

    return keeps_floats(nbytes)


def multiplies_floats(rows: int) -> bool:
    """Whether this many rows multiply faster with a dequantized matrix than with the packed one."""
    if not cpu_uses("floats"):
        return False
    from zoo.cpu.floats import multiplies_floats

    return multiplies_floats(rows)


_process: int | None = None  # the one in which MLX's threads run


def _forked() -> bool:
    """Whether this process was forked from one that had loaded a model: its calls of MLX would abort or never end."""
    return _process is not None and os.getpid() != _process


def check_not_forked() -> None:
    """ZooError in a process forked from one that had loaded a model."""
    if _forked():
        raise ZooError(
            "this process was forked from one that had loaded a model, and MLX's threads do not survive a fork: "
            "start processes with multiprocessing.get_context('spawn'), and load the model in each"
        )


def synchronize() -> None:
    """Wait until MLX has computed everything that was started.

    A program that ends earlier may abort: the interpreter frees what MLX's thread still uses.
    """
    mx.synchronize()


def release_memory() -> None:
    """Return the memory of freed arrays, which MLX keeps for new ones, to the system."""
    if not _forked():
        mx.clear_cache()


def prefill_chunk() -> int:
    """Prompt tokens a pass: limits the time of a pass and the memory of its scores, (chunk × cached) a head.

    On a CPU longer chunks are hardly faster, and other sequences would wait longer.
    """
    return 2048 if on_gpu() else 512


def evaluates_by_layer() -> bool:
    """Whether a pass over many tokens is evaluated layer by layer.

    On a CPU such a pass takes seconds, and Ctrl-C can stop it only between evaluations. A GPU would be idle between them.
    """
    return not on_gpu()


def set_up_device() -> None:
    """Note that this process computes: no process that is forked from it may."""
    global _process
    _process = os.getpid()


_wiring = 0  # generations under way


@contextmanager
def wired_memory() -> Iterator[None]:
    """On Metal, keep as much memory as the system recommends from being swapped out, while a text is generated.

    Wired memory that no generation uses is taken from other programs.
    """
    global _wiring
    if not on_metal():
        yield
        return
    _wiring += 1
    mx.set_wired_limit(_recommended())
    try:
        yield
    finally:
        _wiring -= 1
        if _wiring == 0 and not _forked():
            mx.synchronize()
            mx.set_wired_limit(0)


def on_metal() -> bool:
    """Whether MLX's default device is a GPU of a Mac."""
    return on_gpu() and mx.metal.is_available()


def _recommended() -> int:
    """Bytes: the most that Metal recommends to use, two thirds to three quarters of a Mac's memory."""
    return int(mx.device_info()["max_recommended_working_set_size"])


def usable_memory() -> int | None:
    """The bytes that a model and its caches may take: on Metal what it recommends, else the machine's memory."""
    return _recommended() if on_metal() else total_memory()


def active_memory() -> int:
    """The bytes that MLX holds."""
    return mx.get_active_memory()


def peak_memory() -> int:
    """The most bytes that MLX has held at once."""
    return mx.get_peak_memory()


def speed_advice() -> list[str]:
    """Advice to make this machine faster, one line each."""
    if sys.platform != "linux" or on_gpu():
        return []
    from zoo.cpu.blas import blas_advice

    return blas_advice()


def blas() -> str:
    """The name of the BLAS that multiplies matrices on the CPU."""
    if sys.platform != "linux":
        return "Accelerate" if sys.platform == "darwin" else "MLX's own"
    from zoo.cpu.blas import blas

    return blas()


def machine() -> str:
    """The system, the processor's architecture and cores, and the GPU, if there is one: "Linux x86_64, 2 cores"."""
    gpu = mx.device_info().get("device_name") if on_gpu() else None
    return f"{os.uname().sysname} {os.uname().machine}, {os.cpu_count()} cores" + (f", {gpu}" if gpu else "")


def versions() -> dict[str, str]:
    """The environment of a measurement: versions of the zoo and of MLX, backend, BLAS, machine."""
    return {
        "mlx-zoo": version("mlx-zoo"),
        "mlx": version("mlx"),
        "backend": backend(),
        "blas": blas(),
        "machine": machine(),
    }
