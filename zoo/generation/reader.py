"""A model with its caches, asked for the logits of the next token.

Axes: B texts, H rows, T length, S source length, D width, V vocabulary.
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
        """The logits of the first new token of each text, (B, V)."""

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""


class TextReader:
    """A decoder: the prompt is read once, in chunks where it is longer than `chunk` tokens, then a token a pass.

    `prefix`: the prompt's tokens see each other both ways, so that it is read in one piece. `report` is called with the
    tokens of the prompt that were read and those in all. The head works on the last position only. `hidden`, where a
    list is given, gets the hidden states of each pass, (H, T, D).
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
        hidden: list[mx.array] | None = None,
    ) -> None:
        self.model, self.protocol = model, protocol_of(model)
        self.prompt, self.prefix, self.report, self.hidden = prompt, prefix, report, hidden
        self.chunk = chunk or runtime.prefill_chunk()
        self.reserve = len(prompt) + min(limit, MOST_RESERVED)
        self.cache: Any = None
        self.read = 0  # tokens of the prompt

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        self.cache = self.model.make_cache(CachePolicy(reserve=self.reserve))
        return self._read(mx.array([self.prompt]), len(self.prompt))  # (1, T) -> (1, V)

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        return self.model.head(self._pass(tokens)[:, -1:])[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.protocol.select(self.cache, mx.array(list(rows)))

    def _read(self, tokens: mx.array, lengths: int | mx.array) -> mx.array:  # (B, T) -> (B, V)
        """The logits after the prompts, which have so many tokens: a number, or (B,) where they are padded."""
        if self.prefix:
            return self._logits(tokens, prefix=lengths)
        last, total = self.protocol.last_chunk or self.chunk, tokens.shape[1]
        while total - self.read > last:
            piece = min(self.chunk, total - self.read - 1)
            self._pass(tokens[:, self.read : self.read + piece])
            self._settle(piece)
        return self._logits(tokens[:, self.read :])

    def _pass(self, tokens: mx.array, **inputs: Any) -> mx.array:  # (H, T) -> (H, T, D)
        hidden = self.model.backbone(tokens, self.cache, **inputs)
        if self.hidden is not None:
            self.hidden.append(hidden)
        return hidden

    def _logits(self, tokens: mx.array, **inputs: Any) -> mx.array:
        hidden = self._pass(tokens, **inputs)[:, -1:]  # (B, T) -> (B, 1, D)
        if tokens.shape[1] >= LONG:
            self._settle(tokens.shape[1])
        return self.model.head(hidden)[:, -1]

    def _settle(self, tokens: int) -> None:
        """Evaluate a pass over so many tokens of the prompt, telling how far it is."""
        report, before = self.report, self.read
        settle(self.cache, tokens, report and (lambda done: report(before + done, len(self.prompt))))
        self.read += tokens


class TextsReader(TextReader):
    """A decoder that reads several prompts in one batch, padded on the left."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], limit: int, **settings: Any) -> None:
        super().__init__(model, max(prompts, key=len), limit, **settings)
        self.prompts = prompts

    def first(self) -> mx.array:
        """The logits of the first new token of each text, (B, V)."""
        self.cache = self.model.make_cache(CachePolicy(reserve=self.reserve))
        tokens, mask = padded(self.prompts, left=True)  # (B, T)
        lengths = mask.sum(axis=1)  # (B,)
        for cache in self.cache:
            cache.padding = tokens.shape[1] - lengths
        return self._read(tokens, lengths)


class TranslationReader:
    """An encoder-decoder: the sources are encoded once, in one batch, and each target begins with the token `start`."""

    def __init__(self, model: Any, sources: Sequence[Sequence[int]], limit: int, *, start: int) -> None:
        self.model, self.protocol = model, protocol_of(model)
        self.sources, self.start = sources, start
        self.reserve = 1 + min(limit, MOST_RESERVED)
        self.cache: Any = None
        self.mask: mx.array | None = None  # (B or H, S), where some sources are padded

    def first(self) -> mx.array:
        """The logits of the first new token of each target, (B, V)."""
        self.cache = self.model.make_cache(CachePolicy(reserve=self.reserve))
        start = mx.full((len(self.sources), 1), self.start)
        if len({len(source) for source in self.sources}) == 1:
            memory = self.model.encode(mx.array(self.sources))  # (B, S, D)
            return self.model.decode(start, memory, self.cache)[:, -1]
        tokens, self.mask = padded(self.sources)
        memory = self.model.encode(tokens, self.mask)  # (B, S, D)
        return self.model.decode(start, memory, self.cache, self.mask)[:, -1]

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        # The caches have the keys and values of the source.
        if self.mask is None:
            return self.model.decode(tokens, None, self.cache)[:, -1]
        return self.model.decode(tokens, None, self.cache, self.mask)[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        chosen = mx.array(list(rows))
        self.protocol.select(self.cache, chosen)
        if self.mask is not None:
            self.mask = self.mask[chosen]


def padded(texts: Sequence[Sequence[int]], left: bool = False) -> tuple[mx.array, mx.array]:  # (B, T), (B, T)
    """Texts of unequal length in one batch, and its mask, 1 for a token: padded on the right, or on the left."""
    longest = max(map(len, texts))
    tokens, mask = [], []
    for text in texts:
        padding, ones = [0] * (longest - len(text)), [1] * len(text)
        tokens.append([*padding, *text] if left else [*text, *padding])
        mask.append([*padding, *ones] if left else [*ones, *padding])
    return mx.array(tokens), mx.array(mask)
