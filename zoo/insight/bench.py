"""Timed runs, each in a process of its own, alternating with a peer's; the result is a record for a JSON file.

Run as a script it is one such process: it does the work it is told to, and prints what that took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from zoo.errors import ZooError
from zoo.insight.apart import alternating, answer, run_apart

# A peer of loading: the same files read and evaluated, and nothing else.
WAYS = ("mlx", "zoo")


def bench_load(
    source: str | Path,
    runs: int = 5,
    dtype: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Seconds and peak bytes of loading `source`, beside MLX's reading of the same files; medians of `runs`.

    One warm-up of each comes first, so that the files are in the system's cache. Seconds exclude imports. `peak` is what
    the process grew by at most, `held` the bytes of the loaded parameters.
    """
    from zoo.checkpoint.source import find
    from zoo.host.registry import default_registry
    from zoo.runtime import versions

    if runs < 1:
        raise ZooError(f"runs must be at least 1, got {runs}")
    folder = find(source, default_registry()).path

    def told(way: str, values: dict[str, Any]) -> None:
        report(f"{way}: {values['seconds'] * 1000:,.1f} ms, peak {values['peak'] / 1e6:,.0f} MB")

    def run(way: str) -> dict[str, Any]:
        return run_apart("zoo.insight.bench", [way, str(folder), dtype or ""], str(folder))

    taken = alternating(WAYS, runs, run, warm_up=1, report=told)
    record: dict[str, Any] = {"what": "load", "source": str(source), "runs": runs, "dtype": dtype}
    for way, rows in taken.items():
        record[way] = {key: median(row[key] for row in rows) for key in rows[0]}
        record[way]["all_seconds"] = [row["seconds"] for row in rows]
    record["ratio"] = record["zoo"]["seconds"] / record["mlx"]["seconds"]
    record["peak_over_held"] = record["zoo"]["peak"] / record["zoo"]["held"]
    return record | {"versions": versions()}


def _worker(way: str, folder: str, dtype: str) -> dict[str, float]:
    import resource

    import mlx.core as mx
    import numpy
    from mlx.utils import tree_flatten

    from zoo.checkpoint.checkpoint import open_checkpoint
    from zoo.host.registry import default_registry
    from zoo.loading import load

    files = open_checkpoint(Path(folder), default_registry()).weight_files() if way == "mlx" else []
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss's unit
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    began = time.perf_counter()
    if way == "mlx":
        # Of other files the bytes: MLX's own reader of GGUF crashes at a damaged one.
        arrays = [
            array
            for file in files
            for array in (
                mx.load(str(file)).values()
                if file.suffix == ".safetensors"
                else [mx.array(numpy.fromfile(file, numpy.uint8))]
            )
        ]
        mx.eval(arrays)
    else:
        model = load(folder, dtype=dtype or None, force=True).model
        arrays = [array for _, array in tree_flatten(model.parameters())]
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    return {
        "seconds": seconds,
        "peak": peak,
        "mlx_peak": mx.get_peak_memory(),
        "held": sum(a.nbytes for a in arrays),
    }


if __name__ == "__main__":
    answer(_worker)
