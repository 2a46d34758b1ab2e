"""Texts side by side: one pass of the model a step gives each of them its next token.

Axes: B rows, one a text; V vocabulary; N alternatives.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.cache import CachePolicy, merged_caches
from zoo.errors import ZooError
from zoo.generation.loop.decode_step import DecodeStep
from zoo.generation.loop.sequence import Sequence
from zoo.generation.loop.step import Step
from zoo.generation.sampling.logits import check_numbers, logprobs

Finished = Callable[[Sequence, list[Any], list[int]], None]

WASTE = 0.75  # of the columns must be in use, or those that no row uses are dropped


@dataclass
class SampledTokens:
    """The next tokens of some texts, begun but not waited for: `tokens` (B,), their largest logits `highest` (B,).

    Where log-probabilities are asked for: `logprob` (B,), and the likeliest tokens, `best` and `values` (B, N).
    """

    sequences: abc.Sequence[Sequence]
    tokens: mx.array
    highest: mx.array
    logprob: mx.array | None = None
    best: mx.array | None = None
    values: mx.array | None = None

    def select(self, rows: abc.Sequence[int]) -> SampledTokens:
        """These rows alone."""
        index = mx.array(list(rows))
        arrays = (self.tokens, self.highest, self.logprob, self.best, self.values)
        kept = [None if array is None else array[index] for array in arrays]
        return SampledTokens([self.sequences[row] for row in rows], *kept)  # type: ignore[arg-type]

    def read(self) -> Iterator[tuple[Sequence, Step]]:
        """Each text with the step of its token, but for those that were cancelled; waits for the tokens."""
        highest = self.highest.tolist()
        tokens: Any = self.tokens.tolist()
        logprob: Any = [None] * len(tokens) if self.logprob is None else self.logprob.tolist()
        best: Any = None if self.best is None else self.best.tolist()
        values: Any = None if self.values is None else self.values.tolist()
        for row, sequence in enumerate(self.sequences):
            if sequence.cancelled:
                continue
            most = sequence.alternatives
            alternatives = dict(zip(best[row][:most], values[row][:most], strict=True)) if most else None
            try:
                check_numbers(highest[row], f"token {len(sequence.tokens) + 1}")
                step = sequence.update(
                    tokens[row], logprob[row] if sequence.settings.logprobs else None, alternatives
                )
            except ZooError as error:
                step = sequence.failed(error)
            yield sequence, step


def choose(logits: mx.array, sequences: abc.Sequence[Sequence]) -> SampledTokens:
    """The next token of each text, whose logits are a row of (B, V)."""
    if all(sequence.sampler.is_greedy for sequence in sequences):
        tokens = mx.argmax(logits, axis=-1)
    elif len(sequences) == 1:
        tokens = sequences[0].sampler.choose(logits)
    else:
        each = [sequence.sampler.choose(logits[row : row + 1]) for row, sequence in enumerate(sequences)]
        tokens = mx.concatenate(each)
    chosen = SampledTokens(sequences, tokens, logits.max(axis=-1))
    begun = [chosen.tokens, chosen.highest]
    if any(sequence.settings.logprobs for sequence in sequences):
        scores = logprobs(logits)  # (B, V)
        chosen.logprob = mx.take_along_axis(scores, tokens[:, None], axis=-1)[:, 0]
        begun.append(chosen.logprob)
        if most := max(sequence.alternatives for sequence in sequences):
            chosen.best = mx.argsort(-scores, axis=-1)[:, :most]
            chosen.values = mx.take_along_axis(scores, chosen.best, axis=-1)
            begun += [chosen.best, chosen.values]
    mx.async_eval(*begun)
    return chosen


@dataclass
class Prefilled:
    """Texts whose prompts were read into `cache`, a row each; their next tokens have `logits` (B, V)."""

    sequences: list[Sequence]
    cache: list[Any]
    logits: mx.array


class Batch:
    """Texts that run in one batch, their caches merged: rows are padded on the left to the longest.

    The pass for the next tokens is begun before the last are read, so that the device never waits for Python; a text
    that ends unforeseen wastes its row of one pass. Where a choice depends on the token before, the pass is begun all
    the same, and the choice waits. `policy` is that of the caches, `merges` whether rows can join. `finished` is called
    with a text that has ended, its caches alone, and the tokens that these have taken in.
    """

    def __init__(
        self,
        model: Any,
        policy: CachePolicy,
        merges: bool,
        finished: Finished | None = None,
    ) -> None:
        self.model = model
        self._forward = DecodeStep(model)
        self.policy, self.merges = policy, merges
        self.sequences: list[Sequence] = []
        self.cache: list[Any] = []
        self.upcoming: list[SampledTokens] = []  # of the texts, in their order
        self._finished = finished

    def join(self, joining: abc.Sequence[Prefilled]) -> None:
        """More texts, which their prompts' caches and logits come with."""
        self.upcoming += [choose(read.logits, read.sequences) for read in joining]
        caches = [*([self.cache] if self.sequences else []), *(read.cache for read in joining)]
        self.cache = merged_caches(caches) if len(caches) > 1 else caches[0]
        self.sequences = [*self.sequences, *(sequence for read in joining for sequence in read.sequences)]

    def fill(self, sequences: abc.Sequence[Sequence], cache: list[Any], logits: mx.array) -> None:
        """Begin with several texts, whose prompts were read into the rows of `cache`; `logits` (B, V) are of the next tokens."""
        self.sequences, self.cache, self.upcoming = list(sequences), cache, [choose(logits, sequences)]

    def step(self) -> list[tuple[Sequence, Step]]:
        """The next token of every text; those that end with it leave."""
        read, self.upcoming = self.upcoming, []
        tokens = read[0].tokens if len(read) == 1 else mx.concatenate([chosen.tokens for chosen in read])
        stay = [
            row for row, sequence in enumerate(self.sequences) if not (sequence.last or sequence.cancelled)
        ]
        if len(stay) < len(self.sequences):
            tokens = tokens[mx.array(stay)] if stay else tokens
            self._leave(stay)
        waits = any(sequence.sampler.needs_last_token for sequence in self.sequences)
        if self.sequences:
            logits = self._forward(tokens[:, None], self.cache)
            if waits:
                mx.async_eval(logits)
            else:
                self.upcoming = [choose(logits, self.sequences)]
        steps = [step for chosen in read for step in chosen.read()]
        stay = [row for row, sequence in enumerate(self.sequences) if not sequence.finished]
        if len(stay) < len(self.sequences):
            self.upcoming = [chosen.select(stay) for chosen in self.upcoming if stay]
            self._leave(stay)
            if waits and stay:
                logits = logits[mx.array(stay)]
        if waits and self.sequences:
            self.upcoming = [choose(logits, self.sequences)]
        return steps

    def _leave(self, stay: abc.Sequence[int]) -> None:
        """Go on with the rows `stay`; who wants the caches of the others is given them."""
        if self._finished is not None:
            for row in sorted(set(range(len(self.sequences))).difference(stay)):
                sequence = self.sequences[row]
                # What was generated last is in the caches when its end was not foreseen.
                self._finished(sequence, self._alone(row), [*sequence.ids, *sequence.tokens])
        widest = max(sequence.length for sequence in self.sequences)
        self.sequences = [self.sequences[row] for row in stay]
        if not stay:
            self.cache = []
            return
        self.model.select(self.cache, mx.array(list(stay)))
        if max(sequence.length for sequence in self.sequences) < WASTE * widest:
            for cache in self.cache:
                cache.compact()

    def _alone(self, row: int) -> list[Any]:
        """The caches of one row by itself."""
        if len(self.sequences) == 1:
            return self.cache
        alone: list[Any] = self.model.make_cache(self.policy)
        for cache, kept in zip(alone, self.cache, strict=True):
            cache.restore(kept.snapshot(row))
        return alone
