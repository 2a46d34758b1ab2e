"""`DecodeStep`, the pass of one more token, and `BatchDecoder`, a model with its caches, for rows that compete for one text.

Axes: B prompts, H rows that compete, T length, D width, V vocabulary.
"""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import Model
from zoo.cache import merged_caches
from zoo.generation.loop.prompt import MOST_RESERVED, OnHidden, Prefill, Report, ShortPrefill, start_token
from zoo.generation.settings import Settings
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.compiled_step import CompiledStep

DEFAULT = Settings()
RELEASED_AFTER = 256  # steps, in which caches have grown and their earlier arrays are free


class DecodeStep:
    """Runs one more token in each row, by the model's compiled step where it has one."""

    def __init__(self, model: Model) -> None:
        from zoo.compiled_step import compiled_step

        self._model, self._translates = model, model.translates
        self._step: CompiledStep | None = compiled_step(model)
        self._count = 0

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:  # (B, 1) -> (B, V)
        self._count += 1
        if self._count % RELEASED_AFTER == 0:
            runtime.release_memory()
        if self._step is not None:
            return self._step(tokens, cache)
        if self._translates:
            return self._model.decode(tokens, None, cache)[:, 0]  # type: ignore[no-any-return]
        return self._model.head(self._model.backbone(tokens, cache))[:, 0]  # type: ignore[no-any-return]


class BatchDecoder:
    """Reads prompts, then gives the logits of one more token in each row.

    An encoder-decoder reads its sources in one pass. A decoder reads its prompts one after the other, in chunks of the
    size that the settings give, and merges their caches. At most `limit` tokens follow. `report` is called with the tokens of a prompt
    that were read and those in all, `on_hidden` with the position of each pass in the text and its hidden states
    (H, T, D).
    """

    def __init__(
        self,
        loaded: Loaded,
        prompts: abc.Sequence[abc.Sequence[int]],
        limit: int,
        settings: Settings = DEFAULT,
        *,
        report: Report | None = None,
        on_hidden: OnHidden | None = None,
    ) -> None:
        self.loaded, self.model, self.prompts = loaded, loaded.model, prompts
        self.limit, self.settings = min(limit, MOST_RESERVED), settings
        self.report, self.on_hidden = report, on_hidden
        self.length = len(prompts[0])
        # Each row's tokens, where rotary angles depend on how many they are.
        self._texts = [list(ids) for ids in prompts] if self.model.angles.switches else []
        self.cache: list[Any] = []
        self._forward = DecodeStep(self.model)

    def first(self) -> mx.array:
        """The logits of the first new token of each prompt, (B, V)."""
        with self.loaded.adapters.use(self.settings.adapter):
            if self.model.translates:
                self.cache = self.model.make_cache(self.settings.policy(1 + self.limit))
                return ShortPrefill(self.model, self.prompts, self.cache, start_token(self.loaded)).advance()
            return self._read(self.prompts, report=self.report, on_hidden=self.on_hidden)

    def _read(self, texts: abc.Sequence[abc.Sequence[int]], **options: Any) -> mx.array:
        """Read texts into new caches, a row each: the logits (H, V) of their next tokens."""
        read = [
            Prefill(
                self.model,
                ids,
                self.model.make_cache(self.settings.policy(len(ids) + self.limit)),
                chunk=self.settings.prefill_chunk,
                prefix=self.loaded.architecture.causality == "prefix",
                **options,
            )
            for ids in texts
        ]
        logits = [each.finish() for each in read]
        caches = [each.cache for each in read]
        self.cache = merged_caches(caches) if len(caches) > 1 else caches[0]
        return mx.concatenate(logits)

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        with self.loaded.adapters.use(self.settings.adapter):
            if self._texts:
                if any(len(text) in self.model.angles.switches for text in self._texts):
                    self._read(self._texts, following=1)
                rows: Any = tokens.tolist()
                self._texts = [text + row for text, row in zip(self._texts, rows, strict=True)]
            if self.on_hidden is None:
                return self._forward(tokens, self.cache)
            hidden = self.model.backbone(tokens, self.cache)  # (H, 1, D)
            self.on_hidden(self.length, hidden)
            self.length += 1
            return self.model.head(hidden[:, -1:])[:, -1]

    def select(self, rows: abc.Sequence[int]) -> None:
        """Go on with these rows of the caches, in this order."""
        self.model.select(self.cache, mx.array(list(rows)))
        self._texts = [self._texts[row] for row in rows if self._texts]
