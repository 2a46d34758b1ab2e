"""The engine: continuous batching. Sequences join a running batch, get a token a step, and leave."""

from __future__ import annotations

import time
from collections import abc, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import RLock, current_thread
from typing import TYPE_CHECKING, Any

from zoo import runtime
from zoo.cache import CachePolicy, can_merge
from zoo.errors import PromptError, ZooError
from zoo.generation.loop.batch import Batch, Finished, Prefilled, Sequence, sequence_of
from zoo.generation.loop.prompt import (
    MOST_RESERVED,
    Prefill,
    Report,
    ShortPrefill,
    SourcePrefill,
    each_prompt,
)
from zoo.generation.loop.step import Step
from zoo.generation.settings import Settings, checked_shared, settings_for
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.loop.speculative_batch import SpeculativeBatch
    from zoo.generation.prefix_cache import PromptCache

Reading = Prefill | ShortPrefill | SourcePrefill

MOST_ROWS = 32
LONGEST_SHORT = 256  # tokens of a prompt that is read together with others


class Engine:
    """Runs many sequences on one model, each as if it were alone.

    `add` takes a prompt and its settings, `step` gives every running sequence its next token, `cancel` ends one. At most
    `rows` run at once; others wait. A prompt is read in chunks, one a step, so that running sequences go on.
    Synchronous, in the thread of who calls it; one thread at a time may call its methods. PromptError for a number of
    `rows`, a prompt or a setting that cannot be, and for a handle to cancel that is of no text. RuntimeError for a call
    while another thread's call runs.

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
        prefill_share=None,
    ) -> None:
        if type(rows) is not int or rows < 1:
            raise PromptError(f"`rows` must be a whole number of at least 1, got {rows!r:.60}")
        if prompt_cache is not None:
            prompt_cache.check(loaded)
        self.loaded, self.most, self.prompt_cache = loaded, rows, prompt_cache
        self._finished: Finished | None = None
        if prompt_cache is not None:  # for prompts that begin as a sequence that ended did
            self._finished = lambda sequence, cache, ids: prompt_cache.keep(
                ids, cache, sequence.settings.policy()
            )
        self._waiting: deque[Sequence] = deque()
        self._reading: tuple[list[Sequence], Reading] | None = None
        self._groups: list[Batch | SpeculativeBatch] = []
        self._handles = 0
        self._sequences: dict[int, Sequence] = {}
        self._lock, self._thread = RLock(), ""

    @property
    def busy(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._sequences)

    @property
    def idle(self) -> bool:
        """Whether nothing is held for any sequence; a cancelled one is held until the next step."""
        return not (self.busy or self._waiting or self._reading or self._groups)

    waiting = property(lambda self: len(self._waiting))
    prefilling = property(lambda self: int(self._reading is not None))
    running = property(lambda self: sum(len(g.sequences) for g in self._groups))

    def add(
        self,
        prompt: str | abc.Sequence[int],
        *,
        checkpoints: Iterable[int] = (),
        report: Report | None = None,
        **settings: Any,
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
        loaded=None,
    ) -> int:
        """Add a sequence whose settings are a checked record. PromptError for a prompt that cannot be."""
        with self._one_thread("add"):
            sequence = sequence_of(
                loaded or self.loaded,
                prompt,
                settings,
                handle=self._handles,
                checkpoints=checkpoints,
                report=report,
            )
            self._handles += 1
            self._sequences[sequence.handle] = sequence
            self._waiting.append(sequence)
            return sequence.handle

    def cancel(self, handle: int) -> None:
        """End a sequence: it yields no more steps. PromptError for a handle that is unknown or at its end."""
        with self._one_thread("cancel"):
            sequence = self._sequences.pop(handle, None)
            if sequence is None:
                raise PromptError(f"there is no text {handle!r:.60} to cancel: it is unknown, or at its end")
            sequence.cancelled = True  # its row leaves its batch at the next step
            if sequence in self._waiting:
                self._waiting.remove(sequence)
            if self._reading is not None and sequence in self._reading[0]:
                self._reading = None

    def cancel_all(self) -> None:
        """End all sequences, and let go of them."""
        for handle in list(self._sequences):
            self.cancel(handle)
        self.step()

    def step(self) -> list[tuple[int, Step]]:
        """Read a chunk of a waiting prompt and give every running sequence its next token; the steps with their handles.

        A sequence that fails, because its logits are no numbers for example, ends with a step whose finish reason is "error";
        the others go on.
        """
        with self._one_thread("step"):
            steps: list[tuple[int, Step]] = []
            for made in chain([self._admit()], (group.step() for group in self._groups)):
                for sequence, step in made:
                    steps.append((sequence.handle, step))
                    if step.finish_reason is not None:
                        del self._sequences[sequence.handle]
            self._groups = [group for group in self._groups if group.sequences]
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

    def _admit(self) -> list[tuple[Sequence, Step]]:
        """Read waiting prompts, about as many tokens as one chunk has; sequences whose prompts are read join a batch.

        Returns the steps of those that fail.
        """
        failed: list[tuple[Sequence, Step]] = []
        ready: list[Prefilled] = []
        budget = runtime.prefill_chunk()
        running = sum(len(group.sequences) for group in self._groups)
        while budget > 0 and (self._reading is not None or (self._waiting and running < self.most)):
            sequences, prompt = self._reading or self._begin(self._next(self.most - running))
            before = prompt.read
            try:
                logits = prompt.advance()
            except ZooError as error:
                self._reading = None
                failed += [(sequence, sequence.failed(error)) for sequence in sequences]
                continue
            budget -= prompt.read - before
            self._reading = None if logits is not None else (sequences, prompt)
            if self.prompt_cache is not None and isinstance(prompt, Prefill) and prompt.at_checkpoint:
                sequence = sequences[0]
                self.prompt_cache.keep(sequence.ids[: prompt.read], prompt.cache, sequence.settings.policy())
            if logits is not None:
                running += len(sequences)
                if isinstance(prompt, Prefill) and prompt.prompt_logprobs:
                    sequences[0].prompt = replace(
                        sequences[0].prompt,
                        logprobs=tuple(prompt.logprobs),
                        alternatives=tuple(prompt.alternatives) or None,
                    )
                ready.append(Prefilled(sequences, prompt.cache, logits))
        self._join(ready)
        return failed

    def _next(self, most: int) -> list[Sequence]:
        """The sequence that waits longest and the next ones whose prompts fit in the same pass, at most `most`.

        An encoder-decoder reads its sources together, other models short prompts.
        """
        sequences = [self._waiting.popleft()]
        first, longest, shortest = sequences[0], len(sequences[0].ids), len(sequences[0].ids)
        alone = first.start is None and not self._reads_together(first)
        pads = ("left" if first.start is None else "right") in self.loaded.model.padding
        while not alone and self._waiting and len(sequences) < most:
            following = self._waiting[0]
            length, least = max(longest, len(following.ids)), min(shortest, len(following.ids))
            fits = (len(sequences) + 1) * length <= runtime.prefill_chunk()
            if first.start is None:
                fits = fits and self._reads_together(following) and length <= 2 * least
            aligned = pads or len(following.ids) == longest
            if not (fits and aligned and following.settings.policy() == first.settings.policy()):
                break
            longest, shortest = length, least
            sequences.append(self._waiting.popleft())
        return sequences

    def _reads_together(self, sequence: Sequence) -> bool:
        """Whether this prompt can be read in one pass with others."""
        settings, model = sequence.settings, self.loaded.model
        short = len(sequence.ids) <= min(model.last_chunk or LONGEST_SHORT, LONGEST_SHORT)
        asks = settings.prompt_logprobs or settings.prefill_chunk or sequence.drafting or sequence.report
        return (
            short
            and not asks
            and self.prompt_cache is None
            and self.loaded.architecture.causality == "causal"
        )

    def _begin(self, sequences: list[Sequence]) -> tuple[list[Sequence], Reading]:
        """Make the caches of one sequence, or of several with sources and one policy, and what fills them."""
        for each in sequences:
            if each.settings.max_time is not None:
                each.deadline = time.monotonic() + each.settings.max_time
        sequence, loaded = sequences[0], self.loaded
        settings = sequence.settings
        reserve = max(
            len(each.ids) * (each.start is None) + min(each.limit, MOST_RESERVED) for each in sequences
        )
        policy = settings.policy(reserve)
        cache = loaded.model.make_cache(policy)
        if sequence.start is not None:
            return sequences, SourcePrefill(
                loaded.model, [each.ids for each in sequences], cache, sequence.start
            )
        if len(sequences) > 1:
            return sequences, ShortPrefill(loaded.model, [each.ids for each in sequences], cache)
        prompt = Prefill(
            loaded.model,
            sequence.ids,
            cache,
            chunk=settings.prefill_chunk,
            prefix=loaded.architecture.causality == "prefix",
            report=sequence.report,
            prompt_logprobs=settings.prompt_logprobs,
        )
        if sequence.drafting is not None:
            sequence.drafter = sequence.drafting.create()
            sequence.drafter.add_tokens(sequence.ids)
            prompt.on_hidden = sequence.drafter.add_hidden if sequence.drafter.needs_hidden else None
        # Log-probabilities of the prompt need all of it computed.
        if self.prompt_cache is not None and not settings.prompt_logprobs:
            match = self.prompt_cache.match(sequence.ids, policy, sequence.checkpoints)
            match.restore(cache)
            prompt.read, prompt.checkpoints = match.length, match.checkpoints
            sequence.prompt = replace(
                sequence.prompt, cached_tokens=match.length, miss_reason=match.miss_reason
            )
        return sequences, prompt

    def _join(self, ready: abc.Sequence[Prefilled]) -> None:
        """Add sequences whose prompts were read to a batch, or, where their caches cannot be merged, to one of their own."""
        model, joining = self.loaded.model, dict[CachePolicy, list[Prefilled]]()
        for read in ready:
            sequence = read.sequences[0]
            policy = sequence.settings.policy()
            if sequence.drafting is not None:
                from zoo.generation.loop.speculative_batch import SpeculativeBatch

                self._groups.append(
                    SpeculativeBatch(model, sequence, read.cache, read.logits, self._finished)
                )
            elif can_merge(read.cache):
                joining.setdefault(policy, []).append(read)
            else:
                self._groups.append(Batch(model, policy, False, [read], self._finished))
        for policy, reads in joining.items():
            batches = (group for group in self._groups if isinstance(group, Batch) and group.merges)
            batch = next((each for each in batches if each.policy == policy), None)
            if batch is None:
                self._groups.append(Batch(model, policy, True, reads, self._finished))
            else:
                batch.join(reads)


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
