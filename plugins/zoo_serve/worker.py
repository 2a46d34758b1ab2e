"""The worker: the one thread that uses MLX. It loads models, runs engines step by step, and tells the service what came.

Other threads send it jobs. A job that fails ends by itself; the others go on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from zoo import runtime
from zoo.architecture import Strategy
from zoo.errors import PromptError, TokenizerError, ZooError, in_words
from zoo.generation.loop.step import Step
from zoo.generation.prefix_cache import default_budget
from zoo.generation.settings import Settings
from zoo.loading import Loaded
from zoo_serve.models import ModelTable, ServedModel
from zoo_serve.requests import RequestError

MEMORY_SHARE = 0.8  # of the machine's memory, for weights and caches
GATHER_SECONDS = 0.03  # between two requests that an idle worker reads together, at most


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
    """Work for one request. `deliver` is called, in the worker's thread, with what came of it.

    That is None once it has begun, then pairs of a sequence's number and a `Step`, or of 0 and the next piece that a `call`
    yields, each between two steps of the engines; or the error that ended it.
    """

    model: ServedModel
    deliver: Callable[[Any], None]
    sequences: Sequence[PreparedSequence] = ()
    call: Callable[[Loaded], Iterator[Any]] | None = None
    cancelled: bool = False
    handles: dict[int, int] = field(default_factory=dict)  # of the engine, and the sequences' numbers
    running: deque[tuple[int, Iterator[Any]]] = field(
        default_factory=deque
    )  # other strategies' and the call's

    @property
    def nbytes(self) -> int:
        """The bytes that its caches will hold."""
        return sum(sequence.nbytes for sequence in self.sequences)


class Worker:
    """Runs jobs in one thread. `failed` is the error that ended the thread, or None.

    `counts` has the values of the metrics' gauges, as of the last step. `prompt_cache` is the bytes of all prompt caches
    together; each model of the table gets an equal part.
    """

    def __init__(
        self,
        table: ModelTable,
        *,
        rows: int,
        prompt_cache: int | None = None,
        unload_after: float | None = None,
        on_failure: Callable[[BaseException], None] = lambda error: None,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.table, self.rows, self.unload_after = table, rows, unload_after
        self.prompt_cache = (default_budget() if prompt_cache is None else prompt_cache) // table.most
        self.failed: BaseException | None = None
        self.arriving = 0  # requests that are being prepared, as the service says
        self.on_failure, self._after_step = on_failure, after_step
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: deque[Job] = deque()  # until there is memory for their caches
        self._jobs: list[Job] = []
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self._stopping = False
        self._count()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run a job. From any thread."""
        if not self._post(lambda: self._waiting.append(job)):
            job.deliver(ended())

    def cancel(self, job: Job) -> None:
        """End a job: nothing more is delivered, and its rows are free at the next step. From any thread."""
        job.cancelled = True
        self._post(lambda: self._cancel(job))

    def wake(self) -> None:
        """Have the worker look whether a model is wanted. From any thread."""
        if not self._post(lambda: None):
            self.table.fail(ended())

    def stop(self, seconds: float = 10) -> bool:
        """End the thread after its step, and wait for that; whether it ended. From any other thread."""
        self._stopping = True
        self._post(lambda: None)
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _post(self, message: Callable[[], None]) -> bool:
        """Have the worker do something; False where it has failed."""
        with self._lock:
            if self.failed is None:
                self._inbox.put(message)
            return self.failed is None

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._receive()
                self._load_wanted()
                self._admit()
                self._step()
                self._count()
                self._after_step()
        except BaseException as error:
            with self._lock:
                self.failed = error
            with suppress(queue.Empty):
                while True:
                    self._inbox.get_nowait()()
            for job in [*self._waiting, *self._jobs]:
                job.deliver(ended())
            self.table.fail(ended())
            self.on_failure(error)

    def _receive(self) -> None:
        """Do what other threads asked for; wait for them where there is nothing else to do."""
        due = None if self.unload_after is None else self.table.drop_unused(self.unload_after)
        idle = not (self._jobs or self._waiting or self._engines_hold())
        with suppress(queue.Empty):
            self._inbox.get(block=idle, timeout=due)()
            if idle:
                self._gather()
            while True:
                self._inbox.get_nowait()()
        self._forget_ended()

    def _gather(self) -> None:
        """Wait for the requests that are being prepared, each at most `GATHER_SECONDS`, and no more than there are rows."""
        most, end = len(self._waiting), time.monotonic() + GATHER_SECONDS
        while self.arriving and most < self.rows and (rest := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._inbox.get(timeout=rest)()
            if len(self._waiting) > most:
                most, end = len(self._waiting), time.monotonic() + GATHER_SECONDS

    def _forget_ended(self) -> None:
        self._jobs = [job for job in self._jobs if job.handles or job.running]

    def _engines_hold(self) -> bool:
        return any(not model.engine.idle for model in self.table.served.values())

    def _load_wanted(self) -> None:
        """Give models to those who wait for them."""
        while (wanted := self.table.next_wanted()) is not None:
            name, ready = wanted
            try:
                if name not in self.table.served:
                    self.table.free_memory()  # of the model that made room
                    self.table.served[name] = ServedModel(
                        self.table.sources[name], rows=self.rows, prompt_cache=self.prompt_cache
                    )
                ready(self.table.give(name))
            except Exception as error:  # a plugin's code may raise anything
                ready(error)

    def _admit(self) -> None:
        """Begin the jobs for whose caches there is memory, in their order."""
        room = memory_for_caches(self.table.served.values())
        if room is None:
            room = sum(job.nbytes for job in [*self._waiting, *self._jobs])
        for job in [job for job in self._waiting if job.nbytes > room]:
            self._fail(job, too_large(job.nbytes, room))
        held = sum(job.nbytes for job in self._jobs)
        while self._waiting and held + self._waiting[0].nbytes <= room:
            job = self._waiting.popleft()
            if not job.cancelled:
                held += job.nbytes
                self._begin(job)

    def _begin(self, job: Job) -> None:
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
            self._fail(job, error)
            return
        self._jobs.append(job)
        job.deliver(None)

    def _step(self) -> None:
        """One step of each engine that has something to do, and of each sequence of another strategy."""
        for model in list(self.table.served.values()):
            if model.engine.idle:
                continue
            made: dict[int, list[tuple[int, Step]]] = {}
            owners = {handle: job for job in self._jobs if job.model is model for handle in job.handles}
            try:
                steps = model.engine.step()
            except Exception as error:  # not of one sequence, which ends by itself
                for job in {id(job): job for job in owners.values()}.values():
                    self._fail(job, error)
                model.renew_engine()
                continue
            for handle, step in steps:
                job = owners[handle]
                number = job.handles[handle]
                if step.finish_reason is not None:
                    del job.handles[handle]
                made.setdefault(id(job), []).append((number, step))
            for job in self._jobs:
                if id(job) in made:
                    job.deliver(made[id(job)])
        for job in self._jobs:
            if job.running:
                self._step_alone(job)
        self._forget_ended()
        if not self._jobs:
            runtime.release_memory()

    def _step_alone(self, job: Job) -> None:
        """The next step of a job's first sequence that another strategy generates."""
        number, steps = job.running[0]
        try:
            step = next(steps, None)
        except Exception as error:
            self._fail(job, error)
            return
        if step is None:
            job.running.popleft()
        else:
            job.deliver([(number, step)])

    def _fail(self, job: Job, error: Exception) -> None:
        """End a job with an error."""
        self._cancel(job)
        job.deliver(request_error(error, job.model))

    def _cancel(self, job: Job) -> None:
        with suppress(ValueError):
            self._waiting.remove(job)
        for handle in job.handles:
            with suppress(PromptError):
                job.model.engine.cancel(handle)
        job.handles.clear()
        for _, steps in job.running:
            if hasattr(steps, "close"):
                with suppress(Exception):  # of a strategy that fails once more
                    steps.close()
        job.running.clear()

    def _count(self) -> None:
        engines = [model.engine for model in self.table.served.values()]
        self.counts: dict[str, int] = {
            "waiting": len(self._waiting) + sum(engine.waiting for engine in engines),
            "prefilling": sum(engine.prefilling for engine in engines),
            "running": sum(engine.running for engine in engines)
            + sum(bool(job.running) for job in self._jobs),
            "memory_bytes": runtime.active_memory(),
            "models_loaded": len(engines),
        }


def ended() -> RequestError:
    """The error for all requests once the worker has failed."""
    return RequestError(500, "the server's worker has ended", code="failed")


def memory_for_caches(models: Iterable[ServedModel]) -> int | None:
    """The bytes that the caches of running sequences may hold beside the weights and prompt caches; None: unknown."""
    total = runtime.total_memory()
    if total is None:
        return None
    held = sum(m.weight_bytes + (m.prompt_cache.budget if m.prompt_cache else 0) for m in models)
    return max(int(total * MEMORY_SHARE) - held, 0)


def too_large(nbytes: int, room: int) -> RequestError:
    """The error for a request whose caches can never fit."""
    return RequestError(
        400,
        f"the request needs {min(nbytes, 10**18) / 1e9:.2f} GB of cache, and this server has {room / 1e9:.2f} GB: fewer tokens or fewer "
        "answers need less",
        code="insufficient_memory",
    )


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
