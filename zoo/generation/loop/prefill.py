"""Prefill: a prompt is read in one pass, or in chunks, between which other texts get their tokens.

Axes: B batch (1, or the sources read together), T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache import evaluate_caches
from zoo.generation.loop.prompt import padded
from zoo.generation.sampling.logits import token_logprobs

MOST_RESERVED = 4096  # tokens that a new cache has room for: few texts are as long as they may be
LONG = 64  # tokens whose pass is evaluated layer by layer, so that it can be interrupted and followed

Report = Callable[[int, int], None]
OnHidden = Callable[[int, mx.array], None]


@dataclass
class Prefill:
    """Reads a prompt into `cache`, in chunks of at most `chunk` tokens; the cache has the first `read` already.

    `prefix`: the prompt's tokens see each other both ways, so that it is read in one chunk. A chunk ends at each of the
    lengths `checkpoints`, and `at_checkpoint` is True after it. `report` is called with the tokens that were read and
    those in all. `prompt_logprobs`: keep the log-probabilities of the prompt's own tokens, and of so many alternatives;
    without it the head works on the last position only. `on_hidden` is called with the position of a chunk and its
    hidden states (1, T, D).
    """

    model: Any
    ids: Sequence[int]
    cache: list[Any]
    read: int = 0
    chunk: int | None = None
    prefix: bool = False
    checkpoints: Sequence[int] = ()
    report: Report | None = None
    prompt_logprobs: bool | int = False
    on_hidden: OnHidden | None = None

    def __post_init__(self) -> None:
        self.chunk = self.chunk or runtime.prefill_chunk()
        self.last_chunk = self.model.last_chunk or self.chunk
        self.at_checkpoint = False
        self.logprobs: list[float] = []
        self.alternatives: list[dict[int, float]] = []

    def advance(self) -> mx.array | None:
        """Read one more chunk; after the last, the logits (1, V) of the first new token."""
        start, stop = self.read, self._end_of_chunk()
        tokens = mx.array([self.ids[start:stop]])  # (1, T)
        more = {"prefix": len(self.ids)} if self.prefix else {}
        with runtime.eager():
            hidden = self.model.backbone(tokens, self.cache, **more)  # (1, T, D)
        if self.on_hidden is not None:
            self.on_hidden(start, hidden)
        if self.prompt_logprobs:
            self._keep_logprobs(self.model.head(hidden)[0], self.ids[start + 1 : stop + 1])
        last = stop == len(self.ids)
        if not last or stop - start >= LONG:
            report, total = self.report, len(self.ids)
            evaluate_caches(self.cache, stop - start, report and (lambda done: report(start + done, total)))
        self.read, self.at_checkpoint = stop, stop in self.checkpoints
        return self.model.head(hidden[:, -1:])[:, -1] if last else None

    def finish(self) -> mx.array:
        """Read all that is left: the logits (1, V) of the first new token."""
        logits = None
        while logits is None:
            logits = self.advance()
        return logits

    def _end_of_chunk(self) -> int:
        total = len(self.ids)
        if self.prefix:
            return total
        assert self.chunk is not None
        stop = total if total - self.read <= self.last_chunk else min(self.read + self.chunk, total - 1)
        return min([end for end in self.checkpoints if self.read < end < stop], default=stop)

    def _keep_logprobs(self, logits: mx.array, following: Sequence[int]) -> None:  # (T, V), up to T ids
        """Keep the log-probability of each token that follows."""
        if not following:
            return
        count = 0 if isinstance(self.prompt_logprobs, bool) else self.prompt_logprobs
        found = token_logprobs(logits[: len(following)], mx.array(list(following)), count).rows()
        self.logprobs += [value for value, _ in found]
        self.alternatives += [likeliest for _, likeliest in found if likeliest is not None]


@dataclass
class SourcePrefill:
    """Reads the sources of some texts of an encoder-decoder in one pass; their targets begin with the token `start`."""

    model: Any
    sources: Sequence[Sequence[int]]
    cache: list[Any]
    start: int
    read: int = 0

    def advance(self) -> mx.array:
        """The logits (B, V) of the first new token of each target."""
        self.read = sum(map(len, self.sources))
        tokens, mask = padded(self.sources)  # (B, S)
        with runtime.eager():
            memory = self.model.encode(tokens, mask)  # (B, S, D)
        starts = mx.array([[self.start]] * len(self.sources))
        return self.model.decode(starts, memory, self.cache, mask)[:, -1]
