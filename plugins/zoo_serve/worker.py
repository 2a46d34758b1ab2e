"""The worker: the one thread that uses MLX. It loads models, and has a runner run jobs step by step.

Other threads send it jobs. A job that fails ends by itself; the others go on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from zoo import runtime
from zoo.errors import DoesNotFit
from zoo.generation.prefix_cache import default_budget
from zoo_serve.models import ModelTable, ServedModel
from zoo_serve.requests import RequestError
from zoo_serve.runner import Job, Runner

MEMORY_SHARE = 0.8  # of the machine's memory, for weights and caches
GATHER_SECONDS = 0.03  # between two requests that an idle worker reads together, at most


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
        runner: Runner | None = None,
    ) -> None:
        self.table, self.rows, self.unload_after = table, rows, unload_after
        self.prompt_cache = (default_budget() if prompt_cache is None else prompt_cache) // table.most
        self.failed: BaseException | None = None
        self.arriving = 0  # requests that are being prepared, as the service says
        self.on_failure, self._after_step = on_failure, after_step
        self._lock = threading.Lock()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: deque[Job] = deque()  # until there is memory for their caches
        self.runner = runner or Runner(table)
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
                self.runner.step()
                self._count()
                self._after_step()
                if self.failed is not None:  # another thread has answered all requests
                    return
            self.runner.end()
        except BaseException as error:
            self.fail(error, ended())
            self.on_failure(error)

    def fail(self, error: BaseException, answer: RequestError) -> None:
        """Give all requests this answer, and take no more. From the thread, or from another where the thread hangs."""
        with self._lock:
            if self.failed is not None:
                return
            self.failed = error
        with suppress(queue.Empty):
            while True:
                self._inbox.get_nowait()()
        for job in [*self._waiting, *self.runner.jobs]:
            job.deliver(answer)
        self.table.fail(answer)

    def _receive(self) -> None:
        """Do what other threads asked for; wait for them where there is nothing else to do."""
        due = self.table.drop_unused(self.unload_after)
        idle = not (self._waiting or self.runner.busy)
        with suppress(queue.Empty):
            self._inbox.get(block=idle, timeout=due)()
            if idle:
                self._gather()
            while True:
                self._inbox.get_nowait()()
        self.runner.forget_ended()

    def _gather(self) -> None:
        """Wait for the requests that are being prepared, each at most `GATHER_SECONDS`, and no more than there are rows."""
        most, end = len(self._waiting), time.monotonic() + GATHER_SECONDS
        while self.arriving and most < self.rows and (rest := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._inbox.get(timeout=rest)()
            if len(self._waiting) > most:
                most, end = len(self._waiting), time.monotonic() + GATHER_SECONDS

    def _load_wanted(self) -> None:
        """Give models to those who wait for them."""
        while (wanted := self.table.next_wanted()) is not None:
            name, ready = wanted
            try:
                if name not in self.table.served:
                    self.table.served[name] = self._load(name)
                ready(self.table.give(name))
            except Exception as error:  # a plugin's code may raise anything
                ready(error)

    def _load(self, name: str) -> ServedModel:
        """Load a model. While it does not fit in memory, unused models are dropped, the least recently used first."""
        while True:
            self.table.free_memory()  # of the model that made room
            try:
                source = self.table.sources[name]
                return ServedModel(source, rows=self.rows, prompt_cache=self.prompt_cache)
            except DoesNotFit:
                if not self.table.drop_oldest():
                    raise

    def _admit(self) -> None:
        """Begin the jobs for whose caches there is memory, in their order."""
        room = memory_for_caches(self.table.served.values())
        if room is None:
            room = sum(job.nbytes for job in [*self._waiting, *self.runner.jobs])
        for job in [job for job in self._waiting if job.nbytes > room]:
            self._waiting.remove(job)
            self.runner.fail(job, too_large(job.nbytes, room))
        reserved = sum(job.nbytes for job in self.runner.jobs)
        while self._waiting and reserved + self._waiting[0].nbytes <= room:
            job = self._waiting[0]
            if not job.cancelled:
                reserved += job.nbytes
                self.runner.begin(job)
            self._waiting.popleft()  # only now: `fail` answers all jobs that wait or run

    def _cancel(self, job: Job) -> None:
        try:
            self._waiting.remove(job)
        except ValueError:  # it has begun
            self.runner.cancel(job)

    def _count(self) -> None:
        engines = [model.engine for model in self.table.served.values()]
        self.counts: dict[str, int] = {
            "waiting": len(self._waiting) + sum(engine.waiting for engine in engines),
            "prefilling": sum(engine.prefilling for engine in engines),
            "running": sum(engine.running for engine in engines)
            + sum(bool(job.running) for job in self.runner.jobs),
            "memory_bytes": runtime.active_memory(),
            "models_loaded": len(engines),
        }


def ended() -> RequestError:
    """The error for all requests once the worker has failed."""
    return RequestError(500, "the server's worker has ended", code="failed")


def memory_for_caches(models: Iterable[ServedModel]) -> int | None:
    """The bytes that the caches of running sequences may hold beside the weights and prompt caches; None: unknown."""
    total = runtime.usable_memory()
    if total is None:
        return None
    taken = sum(m.weight_bytes + (m.prompt_cache.budget if m.prompt_cache else 0) for m in models)
    return max(int(total * MEMORY_SHARE) - taken, 0)


def too_large(nbytes: int, room: int) -> RequestError:
    """The error for a request whose caches can never fit."""
    return RequestError(
        400,
        f"the request needs {min(nbytes, 10**18) / 1e9:.2f} GB of cache, and this server has {room / 1e9:.2f} GB: fewer tokens or fewer "
        "answers need less",
        code="insufficient_memory",
    )
