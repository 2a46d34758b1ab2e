"""Settings of a process that computes on a CPU under Linux: which memory it keeps, and how its threads take turns."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

import mlx.core as mx

from zoo.machine import launched, mpi_size

MOST_KEPT = 64 * 2**20  # freed bytes that are kept for the next text
# glibc's settings of malloc.h: bytes from which on an array has pages of its own, which are returned when it is freed (the most
# that may be set), and freed bytes at the end of the heap that are kept.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
LARGE_ARRAY, MOST_UNTRIMMED = 32 * 2**20, 256 * 2**20


def set_up_process() -> None:
    """Let the C library keep freed memory for the next arrays: the system clears every page that it gives anew.

    Where this process has one core, its threads take turns on it, unless it is a rank that MLX's ring connects.
    """
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


_peak = 0  # bytes: the most that MLX held since memory went back to the system


def release_memory() -> None:
    """Return freed memory to the system once it exceeds a bound: the C library keeps that of many small arrays."""
    global _peak
    active = mx.get_active_memory()
    if _peak - active < MOST_KEPT:
        _peak = max(_peak, active)
        return
    mx.clear_cache()
    _peak = active
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
