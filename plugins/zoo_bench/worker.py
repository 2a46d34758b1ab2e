"""One run of one engine; run as a script it is the process of its own that `benchmark` starts."""

from __future__ import annotations

import time
from typing import Any

from zoo.errors import SourceError
from zoo.inspect.subprocess_run import answer
from zoo_bench.engine import Job
from zoo_bench.engines import ENGINES
from zoo_bench.limits import NEEDS
from zoo_bench.metrics import METRICS
from zoo_bench.workloads import WORKLOAD_FUNCTIONS, Workload, started


def one_run(engine: str, asked: str) -> dict[str, Any]:
    """The metrics of the works that the engine does; SourceError where it does none of them."""
    job = Job.from_json(asked)
    works = set(job.works)
    found: dict[str, Any] = {}
    if "start" in works and (taken := started(engine, job.path)):
        found["start_seconds"] = taken
    began = time.perf_counter()
    made = ENGINES[engine](job)
    seconds = time.perf_counter() - began - made.converting
    task = Workload(made, job.lengths)
    for names, work in WORKLOAD_FUNCTIONS.items():
        if works & set(names):
            found |= work(task)
    if "load" in works:
        found |= {"load_seconds": seconds, "peak_bytes": made.peak()}
    found = {one.name: found[one.name] for one in METRICS if one.work in works and one.name in found}
    if not found:
        raise SourceError(made.refused or f"it does nothing of {', '.join(sorted(works))}")
    return found | {NEEDS: made.needs(job.lengths)}


if __name__ == "__main__":
    answer(one_run)
