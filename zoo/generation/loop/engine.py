"""The engine: continuous batching. Sequences join a running batch, get a token a step, and leave."""

from __future__ import annotations

import math
import time
from collections import abc
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from threading import RLock, current_thread
from typing import TYPE_CHECKING, Any, Unpack

import mlx.core as mx
from mlx.utils import tree_flatten

from zoo import runtime
from zoo.cache import CachePolicy, can_merge
from zoo.errors import PromptError
from zoo.generation.loop.batch import Batch, Finished, Prefilled, Sequence, sequence_of
from zoo.generation.loop.failure import failure, is_of_sequences
from zoo.generation.loop.prefill_queue import PrefillQueue, PrefillShare
from zoo.generation.loop.prompt import Report, each_prompt
from zoo.generation.loop.step import Step
from zoo.generation.setting_types import EngineSettings
from zoo.generation.settings import Settings, checked_shared, settings_for
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.loop.speculative_batch import SpeculativeBatch
    from zoo.generation.prefix_cache import PromptCache

MOST_ROWS = 32
SHARED_CHUNK = 128  # tokens of a chunk between two steps of running sequences, where a share limits its time


class Engine:
    """Runs many sequences on one model, each as if it were alone.

    `add` takes a prompt and its settings, `step` gives every running sequence its next token, `cancel` ends one. At most
    `rows` run at once, those whose prompts are being read included; others wait. A prompt is read in chunks, one a step, so
    that running sequences go on; short prompts go before long ones. While sequences run, reading prompts takes at most
    `prefill_share` of the time, a number above 0 and at most 1, except that a short prompt does not wait; None: no limit.
    Synchronous, in the thread of who calls it; one thread at a time may call its methods. PromptError for `rows`, a
    `prefill_share`, a prompt or a setting that cannot be, and for a handle to cancel that is of no text. RuntimeError for a
    call while another thread's call runs.

    >>> engine = zoo.Engine(zoo.load("llama"))
    >>> first = engine.add("The capital city of China is")
    >>> second = engine.add("中国的首都是", max_tokens=3)
    >>> texts = {first: "", second: ""}
    >>> for handle, step in engine.run():
    ...     texts[handle] += step.text
    >>> texts[first], texts[second]
    (' Beijing.', '北京。')
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        rows: int = MOST_ROWS,
        prompt_cache: PromptCache | None = None,
        prefill_share: float | None = None,
    ) -> None:
        if type(rows) is not int or rows < 1:
            raise PromptError(f"`rows` must be a whole number of at least 1, got {rows!r:.60}")
        if prompt_cache is not None:
            prompt_cache.check(loaded)
        self.loaded, self.most, self.prompt_cache = loaded, rows, prompt_cache
        self._finished: Finished | None = None
        if prompt_cache is not None:  # for prompts that begin as a sequence that ended did
            self._finished = lambda sequence, cache, row, ids: prompt_cache.keep(
                ids, cache, sequence.settings.policy(), row
            )
        if prefill_share is not None and loaded.division is not None:
            raise PromptError(
                "`prefill_share`: is measured in time, which differs between the ranks of a divided model"
            )
        self._share = None if prefill_share is None else PrefillShare(prefill_share)
        self._queue = PrefillQueue(loaded, prompt_cache)
        self._ready: list[Prefilled] = []  # to join a batch in the call of `step` under way
        self._groups: list[Batch | SpeculativeBatch] = []
        self._handles = 0
        self._sequences: dict[int, Sequence] = {}
        self._steps: list[tuple[int, Step]] = []  # of the call of `step` under way
        self._lock, self._thread = RLock(), ""

    @property
    def busy(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._sequences or self._steps)

    @property
    def idle(self) -> bool:
        """Whether nothing is held for any sequence; a cancelled one is held until the next step."""
        return not (self.busy or self._groups or self._ready)

    @property
    def waiting(self) -> int:
        """The number of sequences whose prompts wait to be read."""
        return len(self._queue.waiting)

    @property
    def prefilling(self) -> int:
        """The number of sequences whose prompts are being read."""
        return self._queue.rows

    @property
    def running(self) -> int:
        """The number of sequences that get a token a step."""
        return len(self._sequences) - self.waiting - self.prefilling

    def __repr__(self) -> str:
        name, running, waiting = self.loaded.architecture.name, self.running, self.waiting
        return f"<Engine of {name}, {running} texts running of at most {self.most}, {waiting} waiting>"

    def add(
        self,
        prompt: str | abc.Sequence[int],
        *,
        checkpoints: Iterable[int] = (),
        report: Report | None = None,
        **settings: Unpack[EngineSettings],
    ) -> int:
        """Add a sequence and return its handle; its settings are those of `zoo.stream`.

        PromptError, before anything runs, for a prompt or a setting that cannot be.
        """
        checked = settings_for(self.loaded, checked_shared(settings))
        return self.add_sequence(prompt, checked, checkpoints=checkpoints, report=report)

    def add_sequence(
        self,
        prompt: str | abc.Sequence[int],
        settings: Settings,
        *,
        checkpoints: Iterable[int] = (),
        report: Report | None = None,
        loaded: Loaded | None = None,
    ) -> int:
        """Add a sequence whose settings are a checked record.

        `loaded` is the engine's model with another tokenizer for this sequence, for example that of a `ChatPrompt`.
        PromptError for a prompt that cannot be, and for another model.
        """
        with self._one_thread("add"):
            loaded = loaded or self.loaded
            if loaded.model is not self.loaded.model:
                raise PromptError(
                    f"`loaded`: {loaded.architecture.name} from {loaded.folder} is not the model of this engine, "
                    f"{self.loaded.architecture.name} from {self.loaded.folder}"
                )
            sequence = sequence_of(
                loaded, prompt, settings, handle=self._handles, checkpoints=checkpoints, report=report
            )
            self._handles += 1
            self._sequences[sequence.handle] = sequence
            self._queue.waiting.append(sequence)
            return sequence.handle

    def cancel(self, handle: int) -> None:
        """End a sequence: it yields no more steps. PromptError for a handle that is unknown or at its end."""
        with self._one_thread("cancel"):
            sequence = self._sequences.pop(handle, None)
            if sequence is None:
                raise PromptError(f"there is no text {handle!r:.60} to cancel: it is unknown, or at its end")
            sequence.cancelled = True  # its row leaves its batch at the next step
            self._queue.remove(sequence)

    def cancel_all(self) -> None:
        """End all sequences, and let go of them."""
        for handle in list(self._sequences):
            self.cancel(handle)
        self.step()

    def step(self) -> list[tuple[int, Step]]:
        """Read a chunk of a waiting prompt and give every running sequence its next token; the steps with their handles.

        A sequence that fails, because its logits are no numbers or memory is short, for example, ends with a step whose
        finish reason is "error". The others go on, except those that shared the pass that failed.
        """
        with self._one_thread("step"):
            began = time.perf_counter()
            reading = self._read()
            for group in list(self._groups):
                sequences = group.sequences
                try:
                    with self._adapter_of(sequences):
                        self._add_steps(group.step())
                    self._queue.add_again(group.outgrown)
                except BaseException as error:
                    self._groups.remove(group)
                    self._fail(sequences, error, f"in a pass of {len(sequences)} sequences")
            self._groups = [group for group in self._groups if group.sequences]
            if self._share is not None:
                self._share.add_decode(time.perf_counter() - began - reading)
            steps, self._steps = self._steps, []
            return steps

    def run(self) -> Iterator[tuple[int, Step]]:
        """The steps of all sequences, as they come, until none is left."""
        while self.busy:
            yield from self.step()

    @contextmanager
    def _one_thread(self, method: str) -> Iterator[None]:
        """RuntimeError while another thread is in a method of this engine."""
        thread = current_thread().name
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"Engine.{method}: thread {thread} called it while thread {self._thread} uses this engine; "
                "an engine serves one thread at a time"
            )
        try:
            self._thread = thread
            yield
        finally:
            self._lock.release()

    def _read(self) -> float:
        """Read waiting prompts, about as many tokens as one chunk has; sequences whose prompts are read join a batch.

        Returns the seconds that this took from running sequences, where their share is limited.
        """
        running = sum(len(group.sequences) for group in self._groups)
        share = self._share if running else None
        if self._share is not None and not running:
            self._share.debt = 0.0
        chunk = budget = (
            runtime.prefill_chunk() if share is None else min(SHARED_CHUNK, runtime.prefill_chunk())
        )
        seconds = 0.0
        while budget > 0:
            joining = sum(len(read.sequences) for read in self._ready)
            free = self.most - running - joining - self._queue.rows
            reading = self._queue.next(free, chunk, longer=share is None or not share.debt)
            if reading is None:
                break
            if share is not None:
                mx.synchronize()  # the pass under way is not of this chunk
            began = time.perf_counter()
            try:
                with self._adapter_of(reading.sequences):
                    tokens, read = reading.advance(chunk)
                if share is not None and read is not None:
                    mx.eval(read.logits)
            except BaseException as error:
                self._queue.remove(reading.sequences[0])
                if len(reading.sequences) > 1 and is_of_sequences(error):
                    self._queue.add_again(reading.sequences)
                else:
                    length = len(reading.sequences[0].ids)
                    self._fail(reading.sequences, error, f"while reading a prompt of {length:,} tokens")
                continue
            if share is not None:
                share.add_prefill(took := time.perf_counter() - began)
                seconds += took
            budget -= tokens
            if read is not None:
                self._queue.remove(read.sequences[0])
                self._ready.append(read)
        ready, self._ready = self._ready, []
        try:
            self._join(ready)
        except BaseException as error:
            self._fail(chain.from_iterable(read.sequences for read in ready), error, "while joining a batch")
        return seconds

    def _adapter_of(self, sequences: abc.Sequence[Sequence]) -> AbstractContextManager[None]:
        """Let the model's passes meanwhile use the adapter of these sequences, which all of a pass share."""
        return self.loaded.adapters.use(sequences[0].settings.adapter if sequences else None)

    def _add_steps(self, steps: Iterable[tuple[Sequence, Step]]) -> None:
        """Note the steps of this call of `step`; sequences that end with theirs are let go."""
        for sequence, step in steps:
            self._steps.append((sequence.handle, step))
            if step.finish_reason is not None:
                del self._sequences[sequence.handle]

    def _fail(self, sequences: Iterable[Sequence], error: BaseException, where: str) -> None:
        """End sequences with the error of a pass. An interrupt, or an error of another kind, is raised again."""
        for sequence in sequences:
            if not (sequence.cancelled or sequence.finished):
                if is_of_sequences(error):
                    self._add_steps([(sequence, sequence.failed(failure(error, where)))])
                else:
                    del self._sequences[sequence.handle]
                sequence.cancelled = True
        if not is_of_sequences(error):
            raise error

    @cached_property
    def _most_padding(self) -> float:
        """How many columns of the KV caches, one a token, have as many bytes as the weights."""
        recipe, dtype = self.loaded.recipe, runtime.compute_dtype()
        column = recipe.kv_cache_size(recipe.dim) * (dtype.size if dtype else 2)
        weights = sum(array.nbytes for _, array in tree_flatten(self.loaded.model.parameters()))
        return self.loaded.agreed(weights / column if column else math.inf)

    def _join(self, ready: abc.Sequence[Prefilled]) -> None:
        """Add sequences whose prompts were read to a batch, or, where their caches cannot be merged, to one of their own.

        A batch pads its rows to the longest. Where that would be more bytes than the weights, a batch more, whose pass reads
        the weights once more, costs less.
        """
        model = self.loaded.model
        merging = [group for group in self._groups if isinstance(group, Batch) and group.merges]
        joining = [Joining(batch.policy, [row.length for row in batch.sequences], batch) for batch in merging]
        for read in ready:
            sequence = read.sequences[0]
            policy = sequence.settings.policy()
            if sequence.drafting is not None:
                from zoo.generation.loop.speculative_batch import SpeculativeBatch

                self._groups.append(
                    SpeculativeBatch(self.loaded, sequence, read.cache, read.logits, self._finished)
                )
            elif can_merge(read.cache):
                lengths = [row.length for row in read.sequences]
                fits = (j for j in joining if j.policy == policy and j.padding(lengths) <= self._most_padding)
                chosen = next(fits, None)
                if chosen is None:
                    joining.append(chosen := Joining(policy, []))
                chosen.lengths += lengths
                chosen.reads.append(read)
            else:
                self._groups.append(Batch(model, policy, False, [read], self._finished))
        for each in joining:
            if each.reads and each.batch is not None:
                each.batch.join(each.reads)
            elif each.reads:
                self._groups.append(Batch(model, each.policy, True, each.reads, self._finished))


@dataclass
class Joining:
    """What joins a `batch`, or a new one where it is None: `lengths` are those of all its rows, in tokens."""

    policy: CachePolicy
    lengths: list[int]
    batch: Batch | None = None
    reads: list[Prefilled] = field(default_factory=list)

    def padding(self, more: abc.Sequence[int]) -> int:
        """The columns of padding of its rows and `more` rows of these lengths."""
        lengths = [*self.lengths, *more]
        return max(lengths) * len(lengths) - sum(lengths)


def run_prompts(
    engine: Engine, prompts: abc.Sequence[str | abc.Sequence[int]], settings: Settings, **options: Any
) -> Iterator[tuple[int, Step]]:
    """The steps of several prompts that a new engine runs side by side, each with the index of its prompt.

    The `options` are those of `Engine.add_sequence`. PromptError, before anything runs, names the prompt that cannot be.
    The error of a sequence is raised and, of several, names its prompt. A caller that stops early cancels what still runs,
    so that a prompt cache keeps it.
    """
    # The handles of a new engine count from 0, as the prompts do.
    added = each_prompt(prompts, partial(engine.add_sequence, settings=settings, **options))

    def run() -> Iterator[tuple[int, Step]]:
        try:
            for handle, step in engine.run():
                if step.error is not None:
                    name = f"prompts[{handle}]: " if len(added) > 1 else ""
                    raise type(step.error)(f"{name}{step.error}")
                yield handle, step
        except GeneratorExit:
            if engine.busy and engine.prompt_cache is not None:
                runtime.check_not_forked()
                engine.cancel_all()
            raise

    return run()
