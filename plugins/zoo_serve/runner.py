"""The runner: jobs, and the steps of the engines and strategies that generate their answers. One thread uses it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from zoo import runtime
from zoo.architecture import Strategy
from zoo.errors import PromptError, TokenizerError, ZooError, in_words
from zoo.generation.loop.step import Step
from zoo.generation.settings import Settings
from zoo.loading import Loaded
from zoo_serve.models import ModelTable, ServedModel
from zoo_serve.requests import GenerationRequest, RequestError


@dataclass
class PreparedSequence:
    """One answer to be generated: the prompt's ids, and how.

    `view` is the model with the tokenizer of this answer. `settings` are those of an engine's sequence; where they are None,
    the `strategy` is called with the `arguments`.
    """

    ids: list[int]
    view: Loaded
    settings: Settings | None
    strategy: Strategy
    arguments: dict[str, Any]
    checkpoints: tuple[int, ...] = ()
    nbytes: int = 0


@dataclass(eq=False)
class Job:
    """Work for one request. `deliver` is called in the worker's thread with each result.

    The first result is None: the job has begun. Each later one is a list of pairs of a sequence's number and a `Step`. For a
    `call` it is 0 with the next piece, and 0 with None at its end. A RequestError ends the job. `request` is what the
    `sequences` answer.
    """

    model: ServedModel
    deliver: Callable[[Any], None]
    sequences: Sequence[PreparedSequence] = ()
    call: Callable[[Loaded], Iterator[Any]] | None = None
    request: GenerationRequest | None = None
    cancelled: bool = False
    handles: dict[int, int] = field(default_factory=dict)  # of the engine, and the sequences' numbers
    running: deque[tuple[int, Iterator[Any]]] = field(
        default_factory=deque
    )  # other strategies' and the call's

    @property
    def nbytes(self) -> int:
        """The bytes that its caches will hold."""
        return sum(sequence.nbytes for sequence in self.sequences)


class Runner:
    """Runs the `jobs` that have begun on the models of a table."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table
        self.jobs: list[Job] = []

    @property
    def busy(self) -> bool:
        """Whether a job runs, or an engine holds something."""
        return bool(self.jobs) or any(not model.engine.idle for model in self.table.served.values())

    def begin(self, job: Job) -> None:
        """Begin a job; one that cannot be ends with its error."""
        try:
            if job.call is not None:
                job.running.append((0, job.call(job.model.loaded)))
            for number, sequence in enumerate(job.sequences):
                if sequence.settings is None:
                    steps = sequence.strategy.load()(sequence.view, sequence.ids, **sequence.arguments)
                    job.running.append((number, iter(steps)))
                else:
                    handle = job.model.engine.add_sequence(
                        sequence.ids,
                        sequence.settings,
                        checkpoints=sequence.checkpoints,
                        loaded=sequence.view,
                    )
                    job.handles[handle] = number
        except Exception as error:
            self.fail(job, error)
            return
        self.jobs.append(job)
        job.deliver(None)

    def step(self) -> None:
        """One step of each engine that has something to do, and of each sequence of another strategy."""
        for model in list(self.table.served.values()):
            if model.engine.idle:
                continue
            by_job: dict[int, list[tuple[int, Step]]] = {}
            owners = {handle: job for job in self.jobs if job.model is model for handle in job.handles}
            try:
                steps = model.engine.step()
            except Exception as error:  # not of one sequence, which ends by itself
                for job in {id(job): job for job in owners.values()}.values():
                    self.fail(job, error)
                model.renew_engine()
                continue
            for handle, step in steps:
                job = owners[handle]
                number = job.handles[handle]
                if step.finish_reason is not None:
                    del job.handles[handle]
                by_job.setdefault(id(job), []).append((number, step))
            for job in self.jobs:
                if id(job) in by_job:
                    job.deliver(by_job[id(job)])
        for job in self.jobs:
            if job.running:
                self._step_alone(job)
        self.forget_ended()
        if not self.jobs:
            runtime.release_memory()

    def _step_alone(self, job: Job) -> None:
        """The next step of a job's first sequence that another strategy generates."""
        number, steps = job.running[0]
        try:
            step = next(steps, None)
        except Exception as error:
            self.fail(job, error)
            return
        if step is None:
            job.running.popleft()
        if step is not None or job.call is not None:
            job.deliver([(number, step)])

    def fail(self, job: Job, error: Exception) -> None:
        """End a job with an error."""
        self._end(job)
        job.deliver(request_error(error, job.model))

    def cancel(self, job: Job) -> None:
        """End a job: its rows are free at the next step."""
        self._end(job)

    def end(self) -> None:
        """No job will begin any more."""

    def _end(self, job: Job) -> None:
        for handle in job.handles:
            with suppress(PromptError):
                job.model.engine.cancel(handle)
        job.handles.clear()
        for _, steps in job.running:
            if hasattr(steps, "close"):
                with suppress(Exception):  # of a strategy that fails once more
                    steps.close()
        job.running.clear()

    def forget_ended(self) -> None:
        """Let go of the jobs that have ended."""
        self.jobs = [job for job in self.jobs if job.handles or job.running]


def request_error(error: Exception, model: ServedModel | None = None) -> RequestError:
    """An error of the library as one of a request: 400 for what the request asked for, all else 500.

    The message has the name of the `model` in place of its folder; an unexpected error's has no details.
    """
    if isinstance(error, RequestError):
        return error
    if not isinstance(error, ZooError):
        return RequestError(500, "the model failed at this request", code="internal_error")
    message = in_words(error)
    if model is not None:
        message = message.replace(str(model.loaded.folder), model.name)
    return RequestError(400 if isinstance(error, PromptError | TokenizerError) else 500, message)
