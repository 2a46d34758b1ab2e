"""Imported before mlx: a process of tests beside others has one thread of its BLAS, since more only wait for each other."""

import os

# Of this process among those of the tests; empty where it is the only one.
NUMBER = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")

if NUMBER:
    for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

# Of this process when it starts.
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


def use_one_core():
    """Keep a process of tests on one core, where there is one for it: there MLX's two threads wake each other at less cost."""
    if NUMBER and int(NUMBER) < len(CORES):
        for thread in map(int, os.listdir("/proc/self/task")):
            os.sched_setaffinity(thread, {CORES[int(NUMBER)]})


def use_all_cores():
    """In a process that a test starts, before its program: all cores again."""
    if NUMBER and CORES:
        os.sched_setaffinity(0, CORES)
