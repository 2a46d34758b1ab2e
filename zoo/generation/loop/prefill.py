"""A prompt is read by a decoder: in one pass, or, where it is long, in pieces, between which other texts can go on.

Axes: B batch (1, or the sources read together), T length, S source length, D width, V vocabulary, N alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache import evaluate_caches
from zoo.generation.sampling.logits import logprobs

MOST_RESERVED = 4096  # tokens to make room for at once: few texts are as long as they may be
LONG = 64  # tokens whose pass is evaluated layer by layer, so that it can be interrupted and followed

Report = Callable[[int, int], None]


class Prefill:
    """A prompt on its way through a decoder, in pieces of at most `chunk` tokens; `cache` has the first `read` already.

    `prefix`: the prompt's tokens see each other both ways, so that it is read in one piece. A piece ends at each of the
    lengths `checkpoints`, and `at_end` is True after it. `report` is called with the tokens that were read and those in all.
    `judge`: keep the log-probabilities of the prompt's own tokens, and of so many alternatives. The head works on the
    last position only, but for `judge`. `watch` is called with the place of a piece and its hidden states (1, T, D).
    """

    def __init__(
        self,
        model: Any,
        ids: Sequence[int],
        cache: list[Any],
        *,
        read: int = 0,
        chunk: int | None = None,
        prefix: bool = False,
        checkpoints: Sequence[int] = (),
        report: Report | None = None,
        judge: bool | int = False,
        watch: Callable[[int, mx.array], None] | None = None,
    ) -> None:
        self.model, self.ids, self.cache, self.read = model, ids, cache, read
        self.chunk, self.prefix, self.checkpoints = chunk or runtime.prefill_chunk(), prefix, checkpoints
        self.report, self.judge, self.watch = report, judge, watch
        self.last_chunk = model.last_chunk or self.chunk
        self.at_end = False
        self.logprobs: list[float] = []
        self.alternatives: list[dict[int, float]] = []

    def advance(self) -> mx.array | None:
        """Read one more piece; after the last, the logits (1, V) of the first new token."""
        start, stop = self.read, self._stop()
        tokens = mx.array([self.ids[start:stop]])  # (1, T)
        more = {"prefix": len(self.ids)} if self.prefix else {}
        with runtime.eager():
            hidden = self.model.backbone(tokens, self.cache, **more)  # (1, T, D)
        if self.watch is not None:
            self.watch(start, hidden)
        if self.judge:
            self._judge(self.model.head(hidden)[0], self.ids[start + 1 : stop + 1])
        last = stop == len(self.ids)
        if not last or stop - start >= LONG:
            report, total = self.report, len(self.ids)
            evaluate_caches(self.cache, stop - start, report and (lambda done: report(start + done, total)))
        self.read, self.at_end = stop, stop in self.checkpoints
        return self.model.head(hidden[:, -1:])[:, -1] if last else None

    def finish(self) -> mx.array:
        """Read all that is left: the logits (1, V) of the first new token."""
        logits = None
        while logits is None:
            logits = self.advance()
        return logits

    def _stop(self) -> int:
        """Where the next piece ends."""
        total = len(self.ids)
        if self.prefix:
            return total
        stop = total if total - self.read <= self.last_chunk else min(self.read + self.chunk, total - 1)
        return min([end for end in self.checkpoints if self.read < end < stop], default=stop)

    def _judge(self, logits: mx.array, following: Sequence[int]) -> None:  # (T, V), up to T ids
        """Keep the log-probability of each token that follows."""
        if not following:
            return
        scores = logprobs(logits[: len(following)])
        own = mx.take_along_axis(scores, mx.array(list(following))[:, None], axis=-1)[:, 0]
        self.logprobs += own.tolist()  # type: ignore[arg-type]
        if wanted := 0 if isinstance(self.judge, bool) else self.judge:
            best = mx.argsort(-scores, axis=-1)[:, :wanted]  # (T, N)
            values = mx.take_along_axis(scores, best, axis=-1)
            rows: Any = zip(best.tolist(), values.tolist(), strict=True)
            self.alternatives += [dict(zip(*row, strict=True)) for row in rows]


class SourcePrefill:
    """The sources of some texts of an encoder-decoder, read in one pass; their targets begin with the token `start`."""

    chunk, at_end = 0, False

    def __init__(self, model: Any, sources: Sequence[Sequence[int]], cache: list[Any], start: int) -> None:
        self.model, self.sources, self.cache, self.start, self.read = model, sources, cache, start, 0
        self.logprobs: list[float] = []
        self.alternatives: list[dict[int, float]] = []

    def advance(self) -> mx.array:
        """The logits (B, V) of the first new token of each target."""
        lengths = [len(ids) for ids in self.sources]
        self.read, longest = sum(lengths), max(lengths)
        mask = None
        if min(lengths) < longest:
            mask = mx.array([[1] * length + [0] * (longest - length) for length in lengths])  # (B, S)
        tokens = mx.array([[*ids, *[0] * (longest - len(ids))] for ids in self.sources])  # (B, S)
        with runtime.eager():
            memory = self.model.encode(tokens, mask)  # (B, S, D)
        starts = mx.array([[self.start]] * len(lengths))
        return self.model.decode(starts, memory, self.cache, mask)[:, -1]
