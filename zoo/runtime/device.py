"""The device: its backend, dtypes, streams and memory, and which of two ways to compute is faster on it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import mlx.core as mx

from zoo.errors import ZooError
from zoo.machine import blas, processors, total_memory
from zoo.rank_watch.launcher import launched, mpi_size

MOST_THREADS = 8  # more are limited by memory bandwidth
MOST_CASTS = 4  # arrays at once; more are limited by memory bandwidth
MOST_JOINED = 2**30  # bytes of a model; in larger ones reading a matrix dominates its product
DEQUANTIZED_ROWS = 16  # with at least so many rows the CPU dequantizes a matrix before the product
MOST_KEPT = 64 * 2**20  # freed bytes that are kept for the next text
# glibc's settings of malloc.h: bytes from which on an array has pages of its own, which are returned when it is freed (the most
# that may be set), and freed bytes at the end of the heap that are kept.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
LARGE_ARRAY, MOST_UNTRIMMED = 32 * 2**20, 256 * 2**20


@cache
def on_gpu() -> bool:
    """Whether MLX's default device is a GPU."""
    return mx.default_device().type == mx.DeviceType.gpu


def backend() -> str:
    """ "Metal", "CUDA" or "CPU"."""
    if not on_gpu():
        return "CPU"
    return "Metal" if mx.metal.is_available() else "CUDA"


DTYPES = ("float32", "float16", "bfloat16")


def compute_dtype(asked: str | None = None) -> Any:
    """The dtype that floats are cast to; None keeps the checkpoint's. On the CPU float32 is fastest by far."""
    if asked is None:
        return None if on_gpu() else mx.float32
    if asked not in DTYPES:
        raise ZooError(f"dtype {asked!r} is not one of {', '.join(DTYPES)}")
    return getattr(mx, asked)


def dequantized_dtype() -> Any:
    """The dtype of matrices dequantized because MLX lacks their format: float16 on a GPU, float32 on a CPU."""
    return mx.float16 if on_gpu() else mx.float32


def threads() -> int:
    """The number of threads that run numpy's operations in parallel."""
    return min(processors(), MOST_THREADS)


def assign_streams(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Assign each array, given its bytes by name, to a stream, so that every stream has about as many bytes."""
    streams = side_streams()
    given = [0] * len(streams)
    found = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = given.index(min(given))
        given[least] += sizes[name]
        found[name] = streams[least]
    return found


def on_stream(stream: mx.Stream | None) -> AbstractContextManager[Any]:
    """A context whose operations run on this stream, one of `side_streams`."""
    return nullcontext() if stream is None else mx.stream(stream)


@cache
def side_streams() -> tuple[Any, ...]:
    """The streams for work on many arrays at once, one per core of this process; on a GPU the default one.

    They are made once, since each has a thread that never ends.
    """
    if on_gpu():
        return (None,)
    # A version of MLX whose streams belong to one thread has streams that each thread makes for itself.
    new = getattr(mx, "new_thread_local_stream", mx.new_stream)
    return tuple(new(mx.cpu) for _ in range(min(processors(), MOST_CASTS)))


def has_fused_kernels() -> bool:
    """Whether norms, rotary positions and attention are one kernel each rather than several operations."""
    return on_gpu()


def evaluates_in_background() -> bool:
    """Whether `mx.async_eval` returns while a pass is computed. The CPU backend lets a few operations wait, and no more."""
    return on_gpu()


def joins_projections(nbytes: int) -> bool:
    """Whether a model of `nbytes` decodes faster if projections of the same vector are joined in one product."""
    return nbytes <= MOST_JOINED


def keeps_floats(nbytes: int) -> bool:
    """Whether to keep a float copy, of `nbytes`, of packed matrices.

    The CPU backend multiplies packed matrices several times slower than floats. The copy may take half of the memory.
    """
    room = total_memory()
    return not on_gpu() and room is not None and nbytes <= room / 2


def multiplies_floats(rows: int) -> bool:
    """Whether this many rows multiply faster with a dequantized matrix than with the packed one."""
    return rows >= DEQUANTIZED_ROWS and not on_gpu()


_process: int | None = None  # the one in which MLX's threads run


def check_not_forked() -> None:
    """ZooError in a process forked from one that had loaded a model: MLX would abort it."""
    if _process is not None and os.getpid() != _process:
        raise ZooError(
            "this process was forked from one that had loaded a model, and MLX's threads do not survive a fork: "
            "start processes with multiprocessing.get_context('spawn'), and load the model in each"
        )


_peak = 0  # bytes: the most that MLX held since memory went back to the system


def synchronize() -> None:
    """Wait until MLX has computed everything that was started.

    A program that ends earlier may abort: the interpreter frees what MLX's thread still uses.
    """
    mx.synchronize()


def release_memory() -> None:
    """Return freed memory to the system once it exceeds a bound.

    On Linux the C library keeps the memory of many small arrays, such as the caches of a thousand texts.
    """
    global _peak
    if sys.platform != "linux" or on_gpu():
        return
    active = mx.get_active_memory()
    if _peak - active < MOST_KEPT:
        _peak = max(_peak, active)
        return
    mx.clear_cache()
    _peak = active
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


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
    """Prepare the device for a model: on Metal, wire as much memory as the system recommends.

    On Linux's CPU, let the C library keep freed memory for the next arrays: the system clears every page that it gives anew.
    Where this process has one core, its threads take turns on it, unless it is a rank that MLX's ring connects.
    """
    global _process
    _process = os.getpid()
    if on_gpu() and mx.metal.is_available():
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    elif not on_gpu() and sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_THRESHOLD, LARGE_ARRAY)
            libc.mallopt(M_TRIM_THRESHOLD, MOST_UNTRIMMED)
        by_ring = launched() and mpi_size() < 2  # whose threads poll their sockets, and must be interrupted
        if len(os.sched_getaffinity(0)) == 1 and not by_ring:
            _take_turns()


def _take_turns() -> None:
    """Give the threads of this process, and those that they start, Linux's policy SCHED_BATCH.

    A thread that wakes up then does not interrupt another. With the default policy MLX's thread interrupts Python's at every
    operation on a single core.
    """
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(OSError):  # it has ended, or the system does not allow it
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def unwire_memory() -> None:
    """On Metal, wire no memory: for a process that runs beside others for long."""
    if on_gpu() and mx.metal.is_available():
        mx.set_wired_limit(0)


def active_memory() -> int:
    """The bytes that MLX holds."""
    return mx.get_active_memory()


def peak_memory() -> int:
    """The most bytes that MLX has held at once."""
    return mx.get_peak_memory()


def speed_advice() -> list[str]:
    """Advice to make this machine faster, one line each."""
    lines, library = [], blas()
    if sys.platform == "linux" and not on_gpu():
        if "too late" in library:
            lines.append("import zoo before mlx, so that a fast BLAS can be loaded")
        elif "ZOO_BLAS" in library:
            lines.append("unset ZOO_BLAS, so that a fast BLAS is loaded where one is installed")
        elif library.startswith("MLX"):
            lines.append(f"{_installing('scipy-openblas32')}: a fast BLAS for matrix products")
    return lines


def _installing(package: str) -> str:
    """The command that installs a package into this zoo's environment, by pip or uv."""
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install -p {sys.executable}"
    return f"`{pip} {package}`"


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
