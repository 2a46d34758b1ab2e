"""A smaller model of the same vocabulary that drafts for a larger one (Leviathan et al., 2023; Chen et al., 2023).

Axes: T tokens, V vocabulary, which may be padded to another size than the target's.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache import evaluate_caches
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.speculative.drafter import Draft, Drafter, DraftSampler
from zoo.generation.speculative.rollback import Rollback


class DraftModel(Drafter):
    """Drafts with a decoder and caches of its own, which are rolled back as the target's are.

    `model` may be any decoder of the zoo; `context` is the most tokens that it can take, None without a limit.
    """

    def __init__(self, model: Any, sampler: DraftSampler, *, context: int | None = None) -> None:
        super().__init__()
        self.model, self.sampler, self.context = model, sampler, context
        self.caches = model.make_cache()
        self.cached = 0  # tokens of the text in the caches, before the drafts
        self.cached_drafts: list[int] = []  # in the caches after them
        self._rollback = Rollback(model.plain_caches(self.caches))

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass each; none where the positions would run out."""
        if self.context is not None and len(self.text) + count > self.context:
            return Draft()
        self._drop_rejected()
        new = self.text[self.cached :]
        chunk = runtime.prefill_chunk()
        while len(new) > chunk:
            self.model.backbone(mx.array([new[:chunk]]), self.caches)
            evaluate_caches(self.caches, chunk)
            self.cached, new = self.cached + chunk, new[chunk:]
        logits = self._logits(mx.array([new]))
        self.cached = len(self.text)
        self._rollback.checkpoint()
        draft = self.sampler.draft(count, logits, lambda token: self._logits(token[:, None]))
        self.cached_drafts = list(draft.tokens[:-1])
        return draft

    def _drop_rejected(self) -> None:
        """Roll the caches back to the accepted drafts, but not to the whole text: the logits of its end are needed."""
        accepted = common_prefix(self.cached_drafts, self.text[self.cached : -1])
        self.cached += self._rollback.keep(accepted, len(self.cached_drafts))
        self.cached_drafts = []

    def _logits(self, tokens: mx.array) -> mx.array:  # (1, T) -> (1, V)
        return self.model.head(self.model.backbone(tokens, self.caches)[:, -1:])[:, -1]
