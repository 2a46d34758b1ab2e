"""One server on several ranks: rank 0 serves, and tells the others what its runner does, which they do in the same order.

Each operation is a JSON list: a job begins, a job is cancelled, one step, or the end. All ranks prepare a job from the same
request, with rank 0's token ids and seeds, so that each generates the same tokens with its part of the model.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from zoo import rank_watch
from zoo.frozen import Frozen
from zoo.generation.prefix_cache import default_budget
from zoo.generation.strategies import beam
from zoo.rank_watch import Watch
from zoo.runtime import ranks
from zoo_serve.embeddings import EmbeddingCall
from zoo_serve.models import ModelTable, ServedModel, Source
from zoo_serve.prepare import prepare
from zoo_serve.requests import GenerationRequest
from zoo_serve.runner import Job, PreparedSequence, Runner


class Leader(Runner):
    """The runner of rank 0. While nothing runs, the other ranks wait without using the processor."""

    def __init__(self, table: ModelTable) -> None:
        super().__init__(table)
        self._numbers: dict[Job, int] = {}  # of the jobs that run
        self._count = count()
        self._resting = False

    def begin(self, job: Job) -> None:
        try:
            described = describe(job)
        except Exception as error:
            self.fail(job, error)
            return
        self._numbers[job] = next(self._count)
        self._tell("begin", self._numbers[job], described)
        super().begin(job)
        self._rest()

    def cancel(self, job: Job) -> None:
        if job in self._numbers:
            self._tell("cancel", self._numbers[job])
            super().cancel(job)
            self._rest()

    def step(self) -> None:
        if self.busy:
            self._tell("step")
            super().step()
            self._numbers = {job: number for job, number in self._numbers.items() if job in self.jobs}
            self._rest()

    def end(self) -> None:
        self._tell("end")

    def fail(self, job: Job, error: Exception) -> None:
        # If a rank was lost, the watch's thread answers the job while this one waits.
        rank_watch.wait_for_watch(str(error))
        super().fail(job, error)

    def _tell(self, *operation: Any) -> None:
        if self._resting and (watch := rank_watch.watch()) is not None:
            watch.release()
        try:
            ranks.shared(operation)
        except RuntimeError as error:
            rank_watch.wait_for_watch(str(error))
            raise

    def _rest(self) -> None:
        self._resting = not self.busy


def follow(source: Source, rows: int, prompt_cache: int | None, seconds: float) -> None:
    """On a rank other than 0: load the model, and do what the leader does until it ends. A request may take so many `seconds`."""
    table = ModelTable([source])
    budget = default_budget() if prompt_cache is None else prompt_cache
    model = table.served[source.name] = ServedModel(source, rows=rows, prompt_cache=budget)
    runner, jobs, watch = Runner(table), dict[int, Job](), rank_watch.watch()
    for operation, *arguments in operations(runner, watch):
        if operation == "begin":
            number, described = arguments
            jobs[number] = job = job_of(model, described, seconds)
            runner.begin(job)
        elif operation == "cancel":
            if (job := jobs.pop(arguments[0])) in runner.jobs:
                runner.cancel(job)
        else:
            runner.step()
            jobs = {number: job for number, job in jobs.items() if job in runner.jobs}


def operations(runner: Runner, watch: Watch | None) -> Iterator[list[Any]]:
    """The operations that the leader tells, until the end."""
    resting = False
    while True:
        if resting and watch is not None:
            watch.wait()
        operation = ranks.shared(None)
        if operation == ["end"]:
            return
        yield operation
        resting = not runner.busy


def describe(job: Job) -> dict[str, Any]:
    """What the other ranks need to run a job, as JSON holds it. Gives its sequences the seeds that are in it."""
    if isinstance(job.call, EmbeddingCall):
        return {"call": values_of(job.call)}
    assert job.request is not None
    rows = []
    for sequence in job.sequences:
        seed = secrets.randbits(63)
        set_seed(sequence, seed)
        rows.append({"ids": sequence.ids, "checkpoints": sequence.checkpoints, "seed": seed})
    return {"request": values_of(job.request), "rows": rows}


def values_of(record: Frozen) -> dict[str, Any]:
    """The fields of a record."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def job_of(model: ServedModel, described: Mapping[str, Any], seconds: float) -> Job:
    """The job that was described."""
    if "call" in described:
        return Job(model, ignore, call=EmbeddingCall(**described["call"]))
    request, rows = GenerationRequest(**described["request"]), described["rows"]
    if request.messages is None:
        request = replace(request, prompts=tuple(tuple(row["ids"]) for row in rows[:: request.count]))
    sequences, _ = prepare(model, request, seconds, encode=lambda text: rows[0]["ids"])
    for sequence, row in zip(sequences, rows, strict=True):
        sequence.checkpoints = tuple(row["checkpoints"])
        set_seed(sequence, row["seed"])
    return Job(model, ignore, sequences, request=request)


def set_seed(sequence: PreparedSequence, seed: int) -> None:
    """Draw by this seed where the request gave none."""
    if sequence.settings is None:
        draws = sequence.strategy.load() is not beam.stream
        if draws and "seed" in sequence.strategy.setting_names:
            sequence.arguments.setdefault("seed", seed)
    elif sequence.settings.seed is None:
        sequence.settings = replace(sequence.settings, seed=seed)


def ignore(delivered: Any) -> None:
    """Deliver nothing: rank 0 answers."""
