"""Records of benchmarks: made, read, and set beside older ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from zoo.checkpoint.source import find
from zoo.errors import PromptError, SourceError, ZooError
from zoo.files.reading import read_object_at
from zoo.host.registry import default_registry
from zoo.inspect.timing import alternating, run_in_subprocess
from zoo.machine import total_memory
from zoo.runtime import machine, versions
from zoo_bench.engine import PACKAGES, Job, Lengths, check_installed
from zoo_bench.limits import NEEDS
from zoo_bench.workloads import METRICS, ON_REQUEST, WORKLOADS, BenchmarkMetric

WHAT = "benchmark"  # what a record says that it is
# The suite by which machines are compared.
SUITE = ("load", "prefill", "decode", "batch", "context")
SUITE_ENGINES = ("mlx-lm",)
SUITE_SECONDS = 540.0  # of its rounds; ten minutes with what else is measured
SUITE_MODEL = "mlx-community/Llama-3.2-1B-Instruct-4bit"


def benchmark(
    source: str | Path,
    against: Sequence[str] = (),
    *,
    lengths: Lengths | None = None,
    only: Sequence[str] = (),
    runs: int = 5,
    dtype: str | None = None,
    unpack: bool | None = None,
    profile: bool = False,
    seconds: float | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure a checkpoint in the zoo and in the engines `against`, such as "mlx-lm"; gives a record.

    The arguments are the options of `zoo bench`. `only` names works of `workloads.WORKLOADS`; by default all are done but
    those of `workloads.ON_REQUEST`. `dtype` and `unpack` are `zoo.load`'s. `profile` adds where the zoo's time goes, by
    the kind of block. Fewer `runs` are done where they would take more than `seconds`, but one at least. `report` is called
    with the runs that are done and those in all. The first run of each engine is not counted: it brings the files into the
    system's memory.

    The record has `limits`, what the machine does at most, and `needs`, what a token of the zoo takes of it; `share`
    divides them.

    Errors: PromptError for a number that cannot be; ZooError for an unknown engine or work; SourceError for an engine
    that is not installed, or a run that fails.

    >>> from zoo_bench.benchmark import benchmark
    >>> from zoo_bench.engine import Lengths
    >>> record = benchmark("llama", lengths=Lengths(prompt=8, new=2, rows=2), only=["decode"], runs=1)
    >>> record["engines"]["zoo"]["decode_rate"] > 0
    True
    """
    lengths = lengths or Lengths()
    if type(runs) is not int or runs < 1:
        raise PromptError(f"`runs` must be a number of at least 1, got {runs!r:.60}")
    if unknown := [work for work in only if work not in WORKLOADS]:
        raise ZooError(f"nothing called {unknown[0]!r} is measured; there is {', '.join(WORKLOADS)}")
    if "graph" in only and set(only) != {"graph"}:
        raise ZooError("`graph` is measured alone, since its processes may pretend to have a GPU")
    for name in against:
        check_installed(name)
    place = find(source, default_registry())
    architecture = place.architecture.name if place.architecture else None
    works = [work for work in WORKLOADS if (work in only if only else work not in ON_REQUEST)]
    job = Job(str(place.path), works, lengths, dtype, architecture, unpack).to_json()
    engines = list(dict.fromkeys(("zoo", *against)))
    bounded = any(metric.bound for metric in METRICS if metric.work in works)
    done, total = 0, (runs + 1) * len(engines) + bounded + profile

    def run(module: str, *arguments: str) -> dict[str, Any]:
        nonlocal done
        report(done, total)
        name = f"{arguments[0] if len(arguments) > 1 else 'zoo'}, {source}"
        values = run_in_subprocess(f"zoo_bench.{module}", arguments, name)
        done += 1
        return values

    taken = alternating(engines, runs, lambda engine: run("workloads", engine, job), 1, seconds)
    packages = {package for name in against for package in PACKAGES[name].values()}
    record = {
        "what": WHAT,
        "source": Path(source).name if Path(source).expanduser().exists() else str(source),
        **asdict(lengths),
        "runs": len(taken["zoo"]),
        "dtype": dtype,
        "unpack": unpack,
        "engines": {engine: _medians(rows) for engine, rows in taken.items()},
        "limits": run("limits") if bounded else {},
        "needs": taken["zoo"][0][NEEDS],
        **({"profile": run("profile", job)} if profile else {}),
        "versions": {**versions(), **{package: version(package) for package in sorted(packages)}},
        "memory": total_memory(),
    }
    report(total, total)
    return record


def _medians(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each metric over an engine's runs, and the `runs`."""
    runs = [{name: value for name, value in row.items() if name != NEEDS} for row in rows]
    names = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: median(run[name] for run in runs) for name in names} | {"runs": runs}


def share(record: dict[str, Any], one: BenchmarkMetric) -> float | None:
    """The zoo's rate as a share of what the limit that bounds it allows, above 0; None where that is not known.

    It may exceed 1 where what a token takes stays in the processor's caches.
    """
    limit, need = record.get("limits", {}).get(one.bound), record.get("needs", {}).get(one.name)
    rate = record["engines"]["zoo"].get(one.name)
    return rate * need / limit if limit and need and rate else None


def record_name(source: str | Path) -> str:
    """The file name of a suite's record: the machine's last part, its GPU if it has one, and the model."""
    words = f"{machine().rpartition(', ')[2]} {Path(source).name}".lower()
    return re.sub(r"[^a-z0-9.]+", "-", words).strip("-") + ".json"


def is_record(value: Any) -> bool:
    """Whether a value read from JSON is a record of `benchmark`."""
    return isinstance(value, dict) and value.get("what") == WHAT and isinstance(value.get("engines"), dict)


def read_record(path: Path) -> dict[str, Any]:
    """The record in a file. SourceError for a file that has none."""
    record = read_object_at(path.resolve(), SourceError, required=True)
    if not is_record(record):
        raise SourceError(f"{path}: no record of `zoo bench`")
    return record


def compared(new: dict[str, Any], old: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """The zoo's figures in both records: name, before, now, and how many times better (above 1) or worse (below)."""
    before, now = old["engines"]["zoo"], new["engines"]["zoo"]
    rows = []
    for metric in METRICS:
        if before.get(metric.name) and now.get(metric.name):
            ratio = now[metric.name] / before[metric.name]
            rows.append(
                (metric.name, before[metric.name], now[metric.name], ratio if metric.more else 1 / ratio)
            )
    return rows
