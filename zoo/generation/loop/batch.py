"""Texts side by side: one pass of the model a step gives each of them its next token.

Axes: B rows, one a text; V vocabulary; N alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.cache import CachePolicy, merged_caches
from zoo.errors import ZooError
from zoo.generation.loop.decode_step import OneMore
from zoo.generation.loop.sequence import Text
from zoo.generation.loop.step import Step
from zoo.generation.sampling.logits import check_numbers, logprobs

Finished = Callable[[Text, list[Any], list[int]], None]

WASTE = 0.75  # of the columns must be in use, or those that no row uses are dropped


@dataclass
class Chosen:
    """The next tokens of some texts, begun but not waited for: `tokens` (B,), their largest logits `highest` (B,).

    Where log-probabilities are asked for: `logprob` (B,), and the likeliest tokens, `best` and `values` (B, N).
    """

    texts: Sequence[Text]
    tokens: mx.array
    highest: mx.array
    logprob: mx.array | None = None
    best: mx.array | None = None
    values: mx.array | None = None

    def select(self, rows: Sequence[int]) -> Chosen:
        """These rows alone."""
        index = mx.array(list(rows))
        arrays = (self.tokens, self.highest, self.logprob, self.best, self.values)
        kept = [None if array is None else array[index] for array in arrays]
        return Chosen([self.texts[row] for row in rows], *kept)  # type: ignore[arg-type]

    def read(self) -> Iterator[tuple[Text, Step]]:
        """Each text with the step of its token, but for those that were cancelled; waits for the tokens."""
        highest = self.highest.tolist()
        tokens: Any = self.tokens.tolist()
        logprob: Any = [None] * len(tokens) if self.logprob is None else self.logprob.tolist()
        best: Any = None if self.best is None else self.best.tolist()
        values: Any = None if self.values is None else self.values.tolist()
        for row, text in enumerate(self.texts):
            if text.cancelled:
                continue
            most = text.alternatives
            alternatives = dict(zip(best[row][:most], values[row][:most], strict=True)) if most else None
            try:
                check_numbers(highest[row], f"token {len(text.tokens) + 1}")
                step = text.took(tokens[row], logprob[row] if text.settings.logprobs else None, alternatives)
            except ZooError as error:
                step = text.failed(error)
            yield text, step


def choose(logits: mx.array, texts: Sequence[Text]) -> Chosen:
    """The next token of each text, whose logits are a row of (B, V)."""
    if all(text.chooser.plain for text in texts):
        tokens = mx.argmax(logits, axis=-1)
    elif len(texts) == 1:
        tokens = texts[0].chooser.choose(logits)
    else:
        each = [text.chooser.choose(logits[row : row + 1]) for row, text in enumerate(texts)]
        tokens = mx.concatenate(each)
    chosen = Chosen(texts, tokens, logits.max(axis=-1))
    begun = [chosen.tokens, chosen.highest]
    if any(text.settings.logprobs for text in texts):
        scores = logprobs(logits)  # (B, V)
        chosen.logprob = mx.take_along_axis(scores, tokens[:, None], axis=-1)[:, 0]
        begun.append(chosen.logprob)
        if most := max(text.alternatives for text in texts):
            chosen.best = mx.argsort(-scores, axis=-1)[:, :most]
            chosen.values = mx.take_along_axis(scores, chosen.best, axis=-1)
            begun += [chosen.best, chosen.values]
    mx.async_eval(*begun)
    return chosen


@dataclass
class Read:
    """Texts whose prompts were read into `cache`, a row each; their next tokens have `logits` (B, V)."""

    texts: list[Text]
    cache: list[Any]
    logits: mx.array


class Rows:
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
        self._forward = OneMore(model)
        self.policy, self.merges = policy, merges
        self.texts: list[Text] = []
        self.cache: list[Any] = []
        self.upcoming: list[Chosen] = []  # of the texts, in their order
        self._finished = finished

    def join(self, joining: Sequence[Read]) -> None:
        """More texts, which their prompts' caches and logits come with."""
        self.upcoming += [choose(read.logits, read.texts) for read in joining]
        caches = [*([self.cache] if self.texts else []), *(read.cache for read in joining)]
        self.cache = merged_caches(caches) if len(caches) > 1 else caches[0]
        self.texts = [*self.texts, *(text for read in joining for text in read.texts)]

    def fill(self, texts: Sequence[Text], cache: list[Any], logits: mx.array) -> None:
        """Begin with several texts, whose prompts were read into the rows of `cache`; `logits` (B, V) are of the next tokens."""
        self.texts, self.cache, self.upcoming = list(texts), cache, [choose(logits, texts)]

    def step(self) -> list[tuple[Text, Step]]:
        """The next token of every text; those that end with it leave."""
        read, self.upcoming = self.upcoming, []
        tokens = read[0].tokens if len(read) == 1 else mx.concatenate([chosen.tokens for chosen in read])
        stay = [row for row, text in enumerate(self.texts) if not (text.last or text.cancelled)]
        if len(stay) < len(self.texts):
            tokens = tokens[mx.array(stay)] if stay else tokens
            self._leave(stay)
        waits = any(text.chooser.waits for text in self.texts)
        if self.texts:
            logits = self._forward(tokens[:, None], self.cache)
            if waits:
                mx.async_eval(logits)
            else:
                self.upcoming = [choose(logits, self.texts)]
        steps = [step for chosen in read for step in chosen.read()]
        stay = [row for row, text in enumerate(self.texts) if not text.finished]
        if len(stay) < len(self.texts):
            self.upcoming = [chosen.select(stay) for chosen in self.upcoming if stay]
            self._leave(stay)
            if waits and stay:
                logits = logits[mx.array(stay)]
        if waits and self.texts:
            self.upcoming = [choose(logits, self.texts)]
        return steps

    def _leave(self, stay: Sequence[int]) -> None:
        """Go on with the rows `stay`; who wants the caches of the others is given them."""
        if self._finished is not None:
            for row in sorted(set(range(len(self.texts))).difference(stay)):
                text = self.texts[row]
                # What was generated last is in the caches when its end was not foreseen.
                self._finished(text, self._alone(row), [*text.ids, *text.tokens])
        widest = max(text.length for text in self.texts)
        self.texts = [self.texts[row] for row in stay]
        if not stay:
            self.cache = []
            return
        self.model.select(self.cache, mx.array(list(stay)))
        if max(text.length for text in self.texts) < WASTE * widest:
            for cache in self.cache:
                cache.compact()

    def _alone(self, row: int) -> list[Any]:
        """The caches of one row by itself."""
        if len(self.texts) == 1:
            return self.cache
        alone: list[Any] = self.model.make_cache(self.policy)
        for cache, kept in zip(alone, self.cache, strict=True):
            cache.restore(kept.snapshot(row))
        return alone
