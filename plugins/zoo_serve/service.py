"""The service: admits requests, bounds them, hands them to the worker, and cancels them. Runs in the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import Any, TypeVar

from zoo.errors import ZooError, in_words
from zoo.frozen import Frozen, frozen
from zoo.generation.loop.prompt import in_batches
from zoo.generation.strategies.embedding import BATCH
from zoo.loading import Loaded
from zoo_classify.classify import batches_of
from zoo_serve.embeddings import EmbeddingCall, encoded
from zoo_serve.generation import Generation, Mailbox
from zoo_serve.log import note
from zoo_serve.metrics import Metrics
from zoo_serve.models import ModelTable, ServedAdapter, ServedModel
from zoo_serve.prepare import detokenized, prepare, tokenized
from zoo_serve.ranking import RankingCall, encode_rows
from zoo_serve.requests import (
    ClassificationRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    GenerationRequest,
    ModelRequest,
    RequestError,
    ScoreRequest,
    Times,
    TokenizeRequest,
)
from zoo_serve.runner import Job, request_error
from zoo_serve.worker import Worker

Made = TypeVar("Made")
THREADS = 2  # that lay out and encode prompts
RETRY_SECONDS = 2


@frozen()
class Limits(Frozen):
    """Bounds of the server: rows that run at once, requests that wait besides, seconds that one may take."""

    rows: int = 32
    queue: int = 256
    seconds: float = 600


class Service:
    """Answers requests of every kind; one for each process."""

    def __init__(self, table: ModelTable, worker: Worker, limits: Limits, metrics: Metrics) -> None:
        self.table, self.worker, self.limits, self.metrics = table, worker, limits, metrics
        self.under_way = self.body_bytes = 0  # of requests, and of their bodies
        self.loaded = self.stopping = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prompts")
        self._free_threads = asyncio.Semaphore(THREADS)
        self._work: set[Future[Any]] = set()

    @property
    def state(self) -> str:
        """ "loading", "ready", "stopping" or "failed"."""
        if self.worker.failed is not None:
            return "failed"
        if self.stopping:
            return "stopping"
        return "ready" if self.loaded else "loading"

    async def load(self) -> None:
        """Load the first model, so that the first request need not wait. The library's error where that fails."""
        name = self._source(None)
        await self._load(name)
        self._release(name)
        self.loaded = True

    @asynccontextmanager
    async def _admitted(self, name: str | None) -> AsyncIterator[ServedModel]:
        """A place among the requests under way, and the model, loaded. RequestError where there is none."""
        source = self.table.sources[self._source(name)]
        if self.worker.failed is not None:
            raise RequestError(503, "the server has failed", code="failed")
        if self.stopping:
            raise RequestError(503, "the server is stopping", code="stopping", retry_after=RETRY_SECONDS)
        if self.under_way >= self.limits.rows + self.limits.queue:
            self.metrics.refused("queue")
            raise RequestError(
                503,
                f"{self.under_way} requests wait or run already",
                code="overloaded",
                retry_after=RETRY_SECONDS,
            )
        self.under_way += 1
        try:
            model = self.table.acquire(source.holder) or await self._load(source.holder)
            try:
                yield model if source.adapter is None else ServedAdapter(model, source)
            finally:
                self._release(source.holder)
        finally:
            self.under_way -= 1

    def _release(self, name: str) -> None:
        """Be done with a model. The worker may load another in its place."""
        self.table.release(name)
        self.worker.wake()

    def _source(self, name: str | None) -> str:
        if name is None:
            return next(iter(self.table.sources))
        if name not in self.table.sources:
            without_tag = name.removesuffix(":latest")  # which Ollama's clients add
            if without_tag not in self.table.sources:
                raise self.unknown_model(name)
            return without_tag
        return name

    def unknown_model(self, name: str) -> RequestError:
        """The error for a name that is no model's."""
        message = f"model {name!r:.80} not found; this server has {', '.join(self.table.sources)}"
        return RequestError(404, message, param="model", code="model_not_found")

    async def _load(self, name: str) -> ServedModel:
        """The model, once the worker has loaded it."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[ServedModel] = loop.create_future()

        def ready(model: ServedModel | Exception) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, model)

        def settle(model: ServedModel | Exception) -> None:
            if isinstance(model, Exception):
                if not waiting.cancelled():
                    why = f": {in_words(model)}" if isinstance(model, ZooError) else ""
                    line = f"the model {name} cannot be loaded{why}"
                    note(line)
                    problem = RequestError(503, line, code="not_loaded")
                    problem.__cause__ = model
                    waiting.set_exception(model if isinstance(model, RequestError) else problem)
            elif waiting.cancelled():
                self._release(name)
            else:
                waiting.set_result(model)

        self.table.wait(name, ready)
        self.worker.wake()
        try:
            return await waiting
        except asyncio.CancelledError:
            self.table.forget(ready)
            self.worker.wake()
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._release(name)  # it came in the same moment
            raise

    async def in_thread(self, function: Callable[..., Made], *arguments: Any) -> Made:
        """The value of a function that uses no MLX, called in another thread; its errors are raised here."""
        loop = asyncio.get_running_loop()

        def free(work: Future[Any]) -> None:
            self._work.discard(work)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._free_threads.release)

        # What is cancelled keeps its thread until it ends, so that nothing queues up behind it.
        await self._free_threads.acquire()
        work = self._threads.submit(function, *arguments)
        self._work.add(work)
        work.add_done_callback(free)
        return await asyncio.wrap_future(work)

    async def _prepare(self, model: ServedModel, function: Callable[..., Made], *arguments: Any) -> Made:
        """The value of a function called in another thread; its errors as those of a request."""
        try:
            return await self.in_thread(function, *arguments)
        except Exception as error:
            raise request_error(error, model) from error

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[Generation]:
        """An answer that the worker has begun; RequestError where it cannot be.

        When the context ends, what is not generated by then is cancelled.
        """
        asked = time.monotonic()
        async with self._admitted(request.model) as model:
            times = Times(asked, time.monotonic())
            self.table.keep(model.shared, request.keep_alive)
            request = request.for_model(model.is_chat)
            arguments = (model, request, self.limits.seconds)
            self.worker.arriving += 1
            try:
                sequences, prompts = await self._prepare(model, prepare, *arguments)
                mailbox = Mailbox(asyncio.get_running_loop())
                generation = Generation(request, model, sequences, prompts, mailbox, self.metrics, times)
                job = Job(model.shared, mailbox.deliver, sequences, request=request)
            finally:
                self.worker.arriving -= 1
            self.worker.submit(job)
            try:
                await mailbox.next()
                yield generation
            finally:
                self.worker.cancel(job)

    async def _call(
        self, model: ServedModel, call: Callable[[Loaded], Iterator[Made]]
    ) -> AsyncIterator[Made]:
        """What a function yields that the worker calls with the model, one piece between two steps of the engines."""
        mailbox = Mailbox(asyncio.get_running_loop())
        job = Job(model.shared, mailbox.deliver, call=call)
        self.worker.submit(job)
        try:
            await mailbox.next()
            while (piece := (await mailbox.next())[0][1]) is not None:
                yield piece
        finally:
            self.worker.cancel(job)

    async def embed(self, request: EmbeddingRequest) -> tuple[str, list[list[float]], int, Times]:
        """The model's name, the vectors of some texts, the number of their tokens, and when the model was loaded."""
        asked = time.monotonic()
        async with self._admitted(request.model) as model:
            times = Times(asked, time.monotonic())
            self.table.keep(model.shared, request.keep_alive)
            ids = await self._prepare(model, encoded, model.loaded, request)
            batches = in_batches(model.loaded, list(map(len, ids)), BATCH)

            vectors = EmbeddingCall(
                tuple(tuple(ids[text] for text in batch) for batch in batches),
                request.dimensions,
                model.settings.get("adapter"),
            )
            return model.name, await self._in_order(model, vectors, batches), sum(map(len, ids)), times

    async def rank(self, request: ClassificationRequest | ScoreRequest) -> tuple[str, list[Any], int]:
        """The model's name, the scores of pairs, or the best label and all scores of texts, and the number of tokens."""
        async with self._admitted(request.model) as model:
            rows = await self._prepare(model, encode_rows, model.loaded, request)
            batches = batches_of(model.loaded, rows)
            call = RankingCall(
                tuple(tuple(rows[text] for text in batch) for batch in batches),
                isinstance(request, ClassificationRequest),
                model.settings.get("adapter"),
            )
            return model.name, await self._in_order(model, call, batches), sum(len(row.ids) for row in rows)

    async def _in_order(
        self,
        model: ServedModel,
        call: Callable[[Loaded], Iterator[Sequence[Any]]],
        batches: Sequence[Sequence[int]],
    ) -> list[Any]:
        """What a call yields for each text of batches, in the order of the texts."""
        unordered = [value async for piece in self._call(model, call) for value in piece]
        values = dict(zip(chain.from_iterable(batches), unordered, strict=True))
        return [values[text] for text in range(len(values))]

    async def model(self, request: ModelRequest) -> tuple[str, Mapping[str, Any]]:
        """A model's name, and what is known of it, once it is loaded or unloaded where the request asks for that."""
        name = self._source(request.model)
        source = self.table.sources[name]
        if request.load and (request.keep_alive != 0 or source.holder in self.table.served):
            async with self._admitted(name) as model:
                self.table.keep(model.shared, request.keep_alive)
        return name, source.about

    async def tokenize(self, request: TokenizeRequest) -> tuple[int | None, list[int], list[str] | None]:
        """The model's context, the token ids of a text or of a conversation, and their texts if those are asked for."""
        async with self._admitted(request.model) as model:
            return await self._prepare(model, tokenized, model, request)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """The text of token ids."""
        async with self._admitted(request.model) as model:
            return await self._prepare(model, detokenized, model, request)
