"""The batch: one pass of the model a step gives each of its sequences the next token.

A `Sequence` has one text under way: its prompt, its settings, its sampler, and the steps that its tokens become.
Axes: B rows, one a sequence; V vocabulary.
"""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import Model
from zoo.cache import CachePolicy, merged_caches
from zoo.errors import PromptError, ZooError
from zoo.generation.loop.batch_decoder import DecodeStep
from zoo.generation.loop.failure import failure, is_of_sequences
from zoo.generation.loop.guidance import guidance_of
from zoo.generation.loop.prompt import Report, start_token, tokenize_prompt
from zoo.generation.loop.step import Drafted, PromptRead, Step
from zoo.generation.loop.text_stream import TextStream
from zoo.generation.sampling import TokenSampler, sampler_of
from zoo.generation.sampling.logits import TokenLogprobs, check_numbers, token_logprobs
from zoo.generation.settings import Settings
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.speculative import DraftConfig, Drafter


@dataclass(eq=False)
class Sequence:
    """State of one sequence, independent of its batch.

    `ids` are the prompt's, or the source's of an encoder-decoder, whose target begins with `start`. At most `limit`
    tokens are generated; `tokens` are those that were. `checkpoints` are lengths of the prompt at which to keep the
    caches for other prompts. `drafting` says how its tokens are drafted. `report` is called with the tokens of the
    prompt that were read and those in all. `agreed` is `Loaded.agreed`.
    """

    handle: int
    ids: list[int]
    settings: Settings
    limit: int
    sampler: TokenSampler
    stream: TextStream
    start: int | None = None
    checkpoints: Iterable[int] = ()
    report: Report | None = None
    drafting: DraftConfig | None = None
    agreed: Callable[[bool], bool] = bool

    def __post_init__(self) -> None:
        self.tokens: list[int] = []
        self.prompt = PromptRead(len(self.ids))
        self.drafter: Drafter | None = None
        self.drafted = Drafted(0, 0, 0)
        self.cancelled = False
        self.finished = False
        self.alone = False  # whether its prompt must be read by itself
        self.error: ZooError | None = None  # which ends it
        self.deadline: float | None = None

    @property
    def alternatives(self) -> int:
        """How many of the likeliest tokens are asked for with each token."""
        return 0 if isinstance(self.settings.logprobs, bool) else self.settings.logprobs

    @property
    def text(self) -> list[int]:
        """The prompt and the tokens that were generated after it."""
        return [*self.ids, *self.tokens] if self.tokens else self.ids

    @property
    def length(self) -> int:
        """The number of tokens that its caches hold, give or take one."""
        return len(self.ids) * (self.start is None) + len(self.tokens)

    def failed(self, error: ZooError) -> Step:
        """The step that ends this sequence, and no other, with an error."""
        self.finished, self.error = True, error
        return Step(None, "", finish_reason="error", error=error)

    def sampled(self, logits: mx.array) -> mx.array:
        """The next token (1,) by its sampler; any token where that fails, and `error` then says why."""
        try:
            return self.sampler.choose(logits)
        except Exception as error:
            if not is_of_sequences(error):
                raise
            self.error = failure(error, f"while choosing token {len(self.tokens) + 1}")
            return mx.zeros((1,), dtype=mx.uint32)

    def choose(self, token: int, logits: mx.array) -> Step:
        """The step of a token that the caller chose by `logits` (1, V)."""
        if not self.settings.logprobs:
            return self.update(token, None, None)
        [(logprob, alternatives)] = token_logprobs(logits, mx.array([token]), self.alternatives).rows()
        return self.update(token, logprob, alternatives)

    def update(self, token: int, logprob: float | None, alternatives: Mapping[int, float] | None) -> Step:
        """The step of the next token."""
        step = self.stream.add(token, logprob, alternatives)
        if not self.tokens:
            step = replace(step, prompt=self.prompt)
        self.tokens.append(token)
        self.sampler.update(token)
        reason = None
        if self.sampler.mask is not None and self.sampler.mask.done:
            reason = "stop"  # only an end token could follow, and the model may have none
        elif self.deadline is not None and self.agreed(time.monotonic() >= self.deadline):
            reason = "time"
        if step.finish_reason is None and reason is not None:
            step = replace(step, text=step.text + self.stream.rest(), finish_reason=reason)
        self.finished = step.finish_reason is not None
        return step


def sequence_of(
    loaded: Loaded,
    prompt: str | abc.Sequence[int],
    settings: Settings,
    *,
    handle: int = 0,
    checkpoints: Iterable[int] = (),
    report: Report | None = None,
) -> Sequence:
    """The sequence that continues `prompt`, or, of an encoder-decoder, translates it. PromptError for what cannot be."""
    ids, constraints = tokenize_prompt(loaded, prompt, settings)
    vocab = loaded.recipe.embedding.vocab
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(settings, name) > vocab:
            raise PromptError(
                f"`{name}` must be at most {vocab}, the vocabulary, got {getattr(settings, name)}"
            )
    drafting = None
    if settings.drafts:  # else nothing of drafting is imported
        from zoo.generation.speculative import draft_config

        drafting = draft_config(loaded, settings)
    limit = constraints.max_tokens
    return Sequence(
        handle,
        ids,
        settings,
        limit,
        sampler_of(loaded, settings, constraints, guidance_of(loaded, settings, ids, limit)),
        TextStream(loaded, limit, settings.stop, settings.stop_tokens),
        start_token(loaded) if loaded.model.translates else None,
        checkpoints,
        report,
        drafting,
        loaded.agreed,
    )


Finished = Callable[[Sequence, list[Any], int, list[int]], None]

WASTE = 0.75  # of the columns must be in use, or those that no row uses are dropped


@dataclass
class SampledTokens:
    """The next tokens of some sequences, which may still be computed: `tokens` (B,), the largest logits `highest` (B,).

    `logprobs` are those of the tokens, where any of the sequences asks for them. `given`: whether `steps` was called.
    """

    sequences: abc.Sequence[Sequence]
    tokens: mx.array
    highest: mx.array
    logprobs: TokenLogprobs | None = None
    given: bool = False

    def select(self, rows: abc.Sequence[int]) -> SampledTokens:
        """These rows alone."""
        index = mx.array(list(rows))
        return SampledTokens(
            [self.sequences[row] for row in rows],
            self.tokens[index],
            self.highest[index],
            None if self.logprobs is None else self.logprobs.select(index),
            self.given,
        )

    def steps(self) -> Iterator[tuple[Sequence, Step]]:
        """Each sequence with the step of its token, but for those that were cancelled; waits for the tokens."""
        self.given = True
        highest = self.highest.tolist()
        tokens: Any = self.tokens.tolist()
        logprobs = [(None, None)] * len(tokens) if self.logprobs is None else self.logprobs.rows()
        for row, sequence in enumerate(self.sequences):
            if sequence.cancelled:
                continue
            logprob, likeliest = logprobs[row] if sequence.settings.logprobs else (None, None)
            most = sequence.alternatives
            alternatives = dict(islice(likeliest.items(), most)) if likeliest and most else None
            try:
                if sequence.error is not None:
                    raise sequence.error
                check_numbers(highest[row], f"token {len(sequence.tokens) + 1}")
                step = sequence.update(tokens[row], logprob, alternatives)
            except ZooError as error:
                step = sequence.failed(error)
            yield sequence, step


def sample(logits: mx.array, sequences: abc.Sequence[Sequence]) -> SampledTokens:
    """The next token of each sequence, whose logits are a row of (B, V)."""
    if all(sequence.sampler.is_greedy for sequence in sequences):
        tokens = mx.argmax(logits, axis=-1)
    elif len(sequences) == 1:
        tokens = sequences[0].sampled(logits)
    else:
        each = [sequence.sampled(logits[row : row + 1]) for row, sequence in enumerate(sequences)]
        tokens = mx.concatenate(each)
    sampled = SampledTokens(sequences, tokens, logits.max(axis=-1))
    begun = [sampled.tokens, sampled.highest]
    if any(sequence.settings.logprobs for sequence in sequences):
        most = max(sequence.alternatives for sequence in sequences)
        sampled.logprobs = token_logprobs(logits, tokens, most)
        begun += sampled.logprobs.arrays
    mx.async_eval(*begun)
    return sampled


@dataclass
class Prefilled:
    """Sequences whose prompts were read into `cache`, a row each; their next tokens have `logits` (B, V).

    `sampled` are these tokens; None where the sequence has drafts.
    """

    sequences: list[Sequence]
    cache: list[Any]
    logits: mx.array
    sampled: SampledTokens | None


class Batch:
    """Sequences that run in one batch, their caches merged: rows are padded on the left to the longest.

    Where MLX evaluates in the background, the pass for the next tokens begins before the last tokens are read, so that the
    device never waits for Python. A sequence that ends unforeseen wastes its row of one pass. Where a sampler needs the last
    token, the pass begins all the same, and sampling waits. Elsewhere a pass would delay the tokens before it: it begins
    after these were given.

    `policy` is that of the caches, `merges` whether rows can join. `finished` is called with a sequence that has left, the
    caches, its row of them, and the tokens that this holds. `outgrown` are sequences whose next token needs other rotary
    angles for all tokens before it: they have left, and must be read anew.
    """

    def __init__(
        self,
        model: Model,
        policy: CachePolicy,
        merges: bool,
        joining: abc.Sequence[Prefilled],
        finished: Finished | None = None,
    ) -> None:
        self.model = model
        self._forward = DecodeStep(model)
        self.policy, self.merges = policy, merges
        self.sequences: list[Sequence] = []
        self.cache: list[Any] = []
        self.sampled: list[SampledTokens] = []  # the newest of the sequences, in their order
        self.outgrown: list[Sequence] = []
        self._finished = finished
        self._ahead = runtime.evaluates_in_background()
        self.join(joining)

    def join(self, joining: abc.Sequence[Prefilled]) -> None:
        """Add sequences whose prompts were read."""
        caches = [*([self.cache] if self.sequences else []), *(read.cache for read in joining)]
        self.cache = merged_caches(caches) if len(caches) > 1 else caches[0]
        self.sampled += [read.sampled for read in joining if read.sampled is not None]
        self.sequences = [*self.sequences, *(sequence for read in joining for sequence in read.sequences)]

    def step(self) -> Iterator[tuple[Sequence, Step]]:
        """Yields the next token of every sequence; a sequence that ends with it leaves.

        A sequence that has just joined may get two tokens.
        """
        if self._ahead:
            yield from self._step_ahead()
            return
        self.outgrown = []
        running = any(sampled.given for sampled in self.sampled)
        yield from self._give()
        if running:
            self.outgrown = [sequence for sequence in self.sequences if self._outgrows(sequence)]
            self._leave([sequence in self.outgrown for sequence in self.sequences])
        if running and self.sequences:
            self.sampled = [sample(self._pass(), self.sequences)]
            yield from self._give()

    def _step_ahead(self) -> list[tuple[Sequence, Step]]:
        """Starts the next forward pass, then returns the steps of the previous one, so that CPU and GPU overlap."""
        read = self.sampled
        outgrown = [sequence for sequence in self.sequences if self._outgrows(sequence)]
        ends = [len(sequence.tokens) + 1 >= sequence.limit for sequence in self.sequences]
        self._leave([end or row in outgrown for row, end in zip(self.sequences, ends, strict=True)])
        waits = any(sequence.sampler.needs_last_token for sequence in self.sequences)
        if self.sequences:
            logits = self._pass()
            if waits:
                mx.async_eval(logits)
            self.sampled = [] if waits else [sample(logits, self.sequences)]
        steps = [step for sampled in read for step in sampled.steps()]
        self.outgrown = [row for row in outgrown if not (row.finished or row.cancelled)]
        stay = self._leave([sequence.finished for sequence in self.sequences])
        if waits and stay:
            self.sampled = [sample(logits[mx.array(stay)], self.sequences)]
        return steps

    def _outgrows(self, sequence: Sequence) -> bool:
        """Whether the next pass would take a text into another range of rotary angles."""
        return sequence.length - (not self._ahead) in self.model.angles.switches

    def _pass(self) -> mx.array:
        """The logits (B, V) after the newest tokens of all sequences."""
        tokens = [sampled.tokens for sampled in self.sampled]
        return self._forward((tokens[0] if len(tokens) == 1 else mx.concatenate(tokens))[:, None], self.cache)

    def _give(self) -> list[tuple[Sequence, Step]]:
        """Return the steps of the newly sampled tokens, and remove the sequences that have ended."""
        steps = [step for sampled in self.sampled if not sampled.given for step in sampled.steps()]
        self._leave([sequence.finished for sequence in self.sequences])
        return steps

    def _leave(self, ended: abc.Sequence[bool]) -> list[int]:
        """Remove the rows that have `ended` or were cancelled, calling `finished` for each. Returns the rows that stay."""
        leaving = [end or sequence.cancelled for end, sequence in zip(ended, self.sequences, strict=True)]
        stay = [row for row, leaves in enumerate(leaving) if not leaves]
        if not any(leaving):
            return stay
        for row, sequence in enumerate(self.sequences):
            if leaving[row] and self._finished is not None and sequence.error is None:
                # The pass after the last token has begun, if its end was not foreseen, or will never begin.
                held = sequence.tokens if self._ahead else sequence.tokens[:-1]
                self._finished(sequence, self.cache, row, [*sequence.ids, *held])
        widest = max(sequence.length for sequence in self.sequences)
        self.sampled = list(_selected(self.sampled, stay))
        self.sequences = [self.sequences[row] for row in stay]
        if not stay:
            self.cache = []
            return stay
        self.model.select(self.cache, mx.array(stay))
        if max(sequence.length for sequence in self.sequences) < WASTE * widest:
            for cache in self.cache:
                cache.compact()
        return stay


def _selected(parts: Iterable[SampledTokens], stay: abc.Sequence[int]) -> Iterator[SampledTokens]:
    """Keep only the rows in `stay`, and the parts that have any of them. Rows are numbered across the parts, from 0."""
    start = 0
    for sampled in parts:
        stop = start + len(sampled.sequences)
        if rows := [row - start for row in stay if start <= row < stop]:
            yield sampled.select(rows) if start + len(rows) < stop else sampled
        start = stop
