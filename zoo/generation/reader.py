"""A model with its caches, asked for the logits of the next token.

Axes: B batch (1), H rows, T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from zoo.blocks.model import protocol_of
from zoo.cache import CachePolicy
from zoo.generation.prefill import Prefill, Report

MOST_RESERVED = 4096  # tokens to make room for at once: few texts are as long as they may be


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
        self.cache = model.make_cache(CachePolicy(reserve=len(prompt) + min(limit, MOST_RESERVED)))
        self.prompt = Prefill(model, prompt, self.cache, prefix=prefix, chunk=chunk, report=report)

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        return self.prompt.finish()

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        return self.model.head(self.model.backbone(tokens, self.cache)[:, -1:])[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.protocol.select(self.cache, mx.array(list(rows)))


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
