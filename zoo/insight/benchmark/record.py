"""Records of benchmarks: made, read, and set beside older ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from zoo.errors import PromptError, SourceError, ZooError
from zoo.insight.apart import alternating, run_apart
from zoo.insight.benchmark.figures import FIGURES, WORKS, figure
from zoo.insight.benchmark.peers import check_installed

WHAT = "benchmark"  # what a record says that it is


@dataclass(frozen=True)
class Lengths:
    """How much is run: tokens of the prompt, tokens that are written after it, and texts of a batch."""

    prompt: int = 512
    new: int = 64
    rows: int = 8

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) is not int or value < (2 if name == "new" else 1):
                raise PromptError(
                    f"`{name}` must be a number of at least {2 if name == 'new' else 1}, got {value!r:.60}"
                )


def benchmark(
    source: str | Path,
    against: Sequence[str] = (),
    *,
    lengths: Lengths | None = None,
    only: Sequence[str] = (),
    runs: int = 5,
    dtype: str | None = None,
    unpack: bool | None = None,
    report: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure a checkpoint in the zoo and in the engines `against`, "mlx-lm" for example: a record.

    `dtype` and `unpack` are `zoo.load`'s. `only` names works of `figures.WORKS`; all without it. A first run of each engine
    is not counted: after it the files are in the system's memory. `report` is called with the runs that are done and those
    in all. PromptError for a number that cannot be, ZooError for an engine or a work that there is not, SourceError for one
    that is not installed or fails.

    >>> from zoo.insight.benchmark import Lengths, benchmark
    >>> record = benchmark("llama", lengths=Lengths(prompt=8, new=2, rows=2), only=["decode"], runs=1)
    >>> record["engines"]["zoo"]["decode_rate"] > 0
    True
    """
    from zoo.checkpoint.source import find
    from zoo.host.registry import default_registry
    from zoo.runtime import versions

    lengths = lengths or Lengths()
    if type(runs) is not int or runs < 1:
        raise PromptError(f"`runs` must be a number of at least 1, got {runs!r:.60}")
    for work in only:
        if work not in WORKS:
            raise ZooError(f"nothing called {work!r} is measured; there is {', '.join(WORKS)}")
    for name in against:
        check_installed(name)
    found = find(source, default_registry())
    engines = list(dict.fromkeys(("zoo", *against)))
    works = [work for work in WORKS if not only or work in only]
    done, total = 0, (runs + 1) * len(engines)

    def run(engine: str) -> dict[str, Any]:
        nonlocal done
        if report is not None:
            report(done, total)
        asked = dict(folder=str(found.path), works=works, dtype=dtype, unpack=unpack, **asdict(lengths))
        asked["architecture"] = found.architecture and found.architecture.name
        values = run_apart("zoo.insight.benchmark.worker", [engine, json.dumps(asked)], f"{engine}, {source}")
        done += 1
        return values

    taken = alternating(engines, runs, run, warm_up=1)
    if report is not None:
        report(total, total)
    return {
        "what": WHAT,
        "source": str(source),
        **asdict(lengths),
        "runs": runs,
        "dtype": dtype,
        "unpack": unpack,
        "engines": {engine: _medians(rows) | {"runs": rows} for engine, rows in taken.items()},
        "versions": versions(),
    }


def _medians(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: median(row[name] for row in rows) for name in rows[0] if all(name in row for row in rows)}


def is_record(value: Any) -> bool:
    """Whether a value read from JSON is a record of `benchmark`."""
    return isinstance(value, dict) and value.get("what") == WHAT and isinstance(value.get("engines"), dict)


def read_record(path: Path) -> dict[str, Any]:
    """The record in a file. SourceError for a file that has none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"{path}: no JSON") from error
    if not is_record(value):
        raise SourceError(f"{path}: no record of `zoo bench`")
    return dict(value)


def compared(new: dict[str, Any], old: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """The zoo's figures in both records: name, before, now, and how many times better (above 1) or worse (below)."""
    before, now = old["engines"]["zoo"], new["engines"]["zoo"]
    rows = []
    for one in FIGURES:
        if before.get(one.name) and now.get(one.name):
            ratio = now[one.name] / before[one.name]
            rows.append(
                (one.name, before[one.name], now[one.name], ratio if figure(one.name).more else 1 / ratio)
            )
    return rows
