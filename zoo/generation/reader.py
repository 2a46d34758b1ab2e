"""A model with its caches, asked for the logits of the next token.

Axes: B batch (1), H rows, T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import protocol_of
from zoo.cache import CachePolicy, settle

MOST_RESERVED = 4096  # tokens to make room for at once: few texts are as long as they may be
LONG = 64  # tokens whose pass is evaluated layer by layer, so that it can be interrupted and followed

Report = Callable[[int, int], None]


class Reader(Protocol):
    """What the decoding loops ask of a model."""

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""


class TextReader:
    """A decoder: the prompt is read once, in chunks where it is longer than `chunk` tokens, then a token a pass.

    `prefix`: the prompt's tokens see each other both ways, so that it is read in one piece. `report` is called with the
    tokens of the prompt that were read and those in all. The head works on the last position only.
    """

    def __init__(
        self,
        model: Any,
        prompt: Sequence[int],
        limit: int,
        *,
        prefix: bool = False,
        chunk: int | None = None,
        report: Report | None = None,
    ) -> None:
        self.model, self.protocol = model, protocol_of(model)
        self.prompt, self.prefix, self.report = prompt, prefix, report
        self.chunk = chunk or runtime.prefill_chunk()
        self.reserve = len(prompt) + min(limit, MOST_RESERVED)
        self.cache: Any = None
        self.read = 0  # tokens of the prompt

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        self.cache = self.model.make_cache(CachePolicy(reserve=self.reserve))
        tokens = mx.array([self.prompt])  # (1, T)
        if self.prefix:
            return self._logits(tokens, prefix=len(self.prompt))
        last = self.protocol.last_chunk or self.chunk
        while len(self.prompt) - self.read > last:
            piece = min(self.chunk, len(self.prompt) - self.read - 1)
            self.model.backbone(tokens[:, self.read : self.read + piece], self.cache)
            self._settle(piece)
        return self._logits(tokens[:, self.read :])

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        return self.model.head(self.model.backbone(tokens, self.cache)[:, -1:])[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.protocol.select(self.cache, mx.array(list(rows)))

    def _logits(self, tokens: mx.array, **inputs: Any) -> mx.array:
        hidden = self.model.backbone(tokens, self.cache, **inputs)[:, -1:]  # (1, T) -> (1, 1, D)
        if tokens.shape[1] >= LONG:
            self._settle(tokens.shape[1])
        return self.model.head(hidden)[:, -1]

    def _settle(self, tokens: int) -> None:
        """Evaluate a pass over so many tokens of the prompt, telling how far it is."""
        report, before = self.report, self.read
        settle(self.cache, tokens, report and (lambda done: report(before + done, len(self.prompt))))
        self.read += tokens


class TranslationReader:
    """An encoder-decoder: the source is encoded once, and the target begins with the token `start`."""

    def __init__(self, model: Any, source: Sequence[int], limit: int, *, start: int) -> None:
        self.model, self.protocol = model, protocol_of(model)
        self.source, self.start = source, start
        self.reserve = 1 + min(limit, MOST_RESERVED)
        self.cache: Any = None
        self.memory: Any = None

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        self.cache = self.model.make_cache(CachePolicy(reserve=self.reserve))
        self.memory = self.model.encode(mx.array([self.source]))  # (1, S, D)
        return self.next(mx.array([[self.start]]))

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        return self.model.decode(tokens, self.memory, self.cache)[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.protocol.select(self.cache, mx.array(list(rows)))
