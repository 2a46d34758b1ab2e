"""A model with its caches, asked for the logits of the next token of some hypotheses.

Axes: B texts, H rows, T length, S source length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx

from zoo.cache import CachePolicy, merged_caches
from zoo.generation.loop.decode_step import DecodeStep
from zoo.generation.loop.prefill import MOST_RESERVED, Prefill, Report, SourcePrefill
from zoo.generation.loop.prompt import start_token
from zoo.generation.settings import Settings
from zoo.loading import Loaded

PLAIN = CachePolicy()
Watch = Callable[[int, mx.array], None]


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
    tokens of the prompt that were read and those in all. The head works on the last position only. `watch` is called
    with the place of each pass in the text and its hidden states (H, T, D).
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
        policy: CachePolicy = PLAIN,
        watch: Watch | None = None,
    ) -> None:
        self.model, self.watch, self.length = model, watch, len(prompt)
        self.cache = model.make_cache(replace(policy, reserve=len(prompt) + min(limit, MOST_RESERVED)))
        self._forward = DecodeStep(model)
        self.prompt = Prefill(
            model, prompt, self.cache, prefix=prefix, chunk=chunk, report=report, watch=watch
        )

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        return self.prompt.finish()

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        if self.watch is None:
            return self._forward(tokens, self.cache)
        hidden = self.model.backbone(tokens, self.cache)  # (H, 1, D)
        self.watch(self.length, hidden)
        self.length += 1
        return self.model.head(hidden[:, -1:])[:, -1]

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.model.select(self.cache, mx.array(list(rows)))


class TextsReader:
    """Readers of one prompt each: they read one after the other, and go on with all texts in one batch."""

    def __init__(self, readers: Sequence[TextReader]) -> None:
        self.readers = list(readers)

    @property
    def cache(self) -> list[Any]:
        """The caches of all texts, once they were read."""
        return self.readers[0].cache

    def first(self) -> mx.array:
        """The logits of the first new token of each text, (B, V)."""
        logits = [reader.first() for reader in self.readers]
        self.readers[0].cache = merged_caches([reader.cache for reader in self.readers])
        del self.readers[1:]
        return mx.concatenate(logits)

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        return self.readers[0].next(tokens)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.readers[0].select(rows)


class TranslationReader:
    """An encoder-decoder: the sources are encoded once, in one batch, and each target begins with the token `start`."""

    def __init__(
        self,
        model: Any,
        sources: Sequence[Sequence[int]],
        limit: int,
        *,
        start: int,
        policy: CachePolicy = PLAIN,
    ) -> None:
        self.model = model
        self.sources, self.start = sources, start
        self.cache = model.make_cache(replace(policy, reserve=1 + min(limit, MOST_RESERVED)))
        self._forward = DecodeStep(model)

    def first(self) -> mx.array:
        """The logits of the first new token of each target, (B, V)."""
        return SourcePrefill(self.model, self.sources, self.cache, self.start).advance()

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        # The caches have the keys and values of the sources, and their mask.
        return self._forward(tokens, self.cache)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.model.select(self.cache, mx.array(list(rows)))


def reader_of(
    loaded: Loaded,
    texts: Sequence[Sequence[int]],
    limit: int,
    settings: Settings,
    *,
    report: Report | None = None,
    watch: Watch | None = None,
) -> TextReader | TextsReader | TranslationReader:
    """What reads prompts and goes on with them in one batch; `report` and `watch` as for `TextReader`."""
    policy = settings.policy()
    if loaded.model.translates:
        start = start_token(loaded)
        return TranslationReader(loaded.model, texts, limit, start=start, policy=policy)
    how: dict[str, Any] = dict(prefix=loaded.architecture.causality == "prefix", policy=policy)
    how |= dict(chunk=settings.prefill_chunk, report=report, watch=watch)
    readers = [TextReader(loaded.model, ids, limit, **how) for ids in texts]
    return TextsReader(readers) if len(readers) > 1 else readers[0]


def padded(texts: Sequence[Sequence[int]], left: bool = False) -> tuple[mx.array, mx.array]:  # (B, T), (B, T)
    """Texts of unequal length in one batch, and its mask, 1 for a token: padded on the right, or on the left."""
    longest = max(map(len, texts))
    tokens, mask = [], []
    for text in texts:
        padding, ones = [0] * (longest - len(text)), [1] * len(text)
        tokens.append([*padding, *text] if left else [*text, *padding])
        mask.append([*padding, *ones] if left else [*ones, *padding])
    return mx.array(tokens), mx.array(mask)
