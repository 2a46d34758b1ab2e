"""This machine, its processors and its memory, and which of several ranks this process is. Imports no mlx, and nothing of the zoo."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

MOST_THREADS = 8  # more are limited by memory bandwidth

# What `mlx.launch` and the launchers of MPI set for each process.
LAUNCHED = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

# Errors that settings of an unexpected form raise when they are read. `zoo.rank_watch` says what is wrong.
UNREADABLE = (KeyError, OSError, ValueError, IndexError, TypeError, AttributeError)

LOST = "connection to a peer was lost"  # what MLX's ring raises on the neighbours of a rank that has ended


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started as one of several ranks; for one rank `mlx.launch` gives an empty list of hosts."""
    if not any(name in environ for name in LAUNCHED):
        return False
    try:
        return "MLX_HOSTFILE" not in environ or bool(read_json(environ["MLX_HOSTFILE"]))
    except (OSError, ValueError):
        return True


def launched_rank(environ: Mapping[str, str] = os.environ) -> int:
    """The number that the launcher gave this process; 0 for one that was started alone."""
    _, number = rank_variable(environ)
    return int(number) if number.isdecimal() else 0


def rank_variable(environ: Mapping[str, str]) -> tuple[str, str]:
    """The name and the value of the variable that holds the number of this rank."""
    return next(((name, environ[name]) for name in LAUNCHED if name in environ), ("", "0"))


def mpi_size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks that a launcher of MPI names, 1 without one."""
    return int(environ.get("OMPI_COMM_WORLD_SIZE") or environ.get("PMI_SIZE") or 1)


def ranks_here(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks on this machine, including this one; 1 where the launcher does not say it."""
    if not launched(environ):
        return 1
    try:
        if "MLX_RANK" not in environ:
            local = environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or environ.get("MPI_LOCALNRANKS") or 1
            return max(1, int(local))
        hosts = [addresses[0].rpartition(":")[0] for addresses in read_json(environ["MLX_HOSTFILE"])]
        return hosts.count(hosts[launched_rank(environ)])
    except UNREADABLE:
        return 1


def read_json(path: str) -> Any:
    """The value in a file of the launcher's; [] for an empty one."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return json.loads(text) if text.strip() else []


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
