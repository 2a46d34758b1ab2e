"""The processors and the memory of this machine. Imports no mlx."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from zoo.launcher import ranks_here

MOST_THREADS = 8  # more are limited by memory bandwidth


def processors(environ: Mapping[str, str] = os.environ) -> int:
    """The number of processors that this process may use. Several ranks on one machine share them evenly."""
    installed = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else installed
    return max(1, min(allowed, installed // ranks_here(environ)))


def threads() -> int:
    """The number of threads that read files or compute in parallel."""
    return min(processors(), MOST_THREADS)


def total_memory() -> int | None:
    """Bytes of memory in the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
