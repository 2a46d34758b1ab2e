"""A smaller model of the same vocabulary that drafts for a larger one (Leviathan et al., 2023; Chen et al., 2023).

Axes: V vocabulary of the target, which may be padded to another size than the draft model's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache import evaluate_caches
from zoo.generation.sampling.stages import LogitsProcessor, stages_of
from zoo.generation.speculative.drafter import Draft
from zoo.generation.speculative.rollback import Rollback

APART = 0x9E3779B97F4A7C15  # or drafts would be drawn with the keys of the tokens


def key_of(seed: int | None) -> mx.array:
    """The first random key of drafts, apart from those of the tokens; None: another in each run."""
    return mx.random.key(secrets.randbits(63) if seed is None else seed ^ APART)


class Draws:
    """How drafts are chosen of a drafter's logits: greedily, or drawn from what `processors` make of them.

    `processors` are the target's temperature and filters, which depend on the logits alone; without any, drafts are greedy.
    The nearer the distribution of the drafts is to the target's, the more drafts are accepted. The text has the target's
    distribution in any case. `seed` None: other draws in each run.
    """

    def __init__(
        self, vocab: int, processors: Sequence[LogitsProcessor] = (), *, seed: int | None = None
    ) -> None:
        self.vocab, self.processors = vocab, processors
        self._key = key_of(seed)

    def __call__(
        self, logits: mx.array
    ) -> tuple[mx.array, mx.array | None]:  # (1, V') -> (1,), (1, V) or None
        """A token, and the law that it was drawn from, None for a greedy choice; nothing is evaluated."""
        logits = fitted(logits.astype(mx.float32), self.vocab)
        if not self.processors:
            return mx.argmax(logits, axis=-1), None
        *_, (_, _, logits) = stages_of(logits, self.processors)
        self._key, use = mx.random.split(self._key)
        return mx.random.categorical(logits, key=use), mx.softmax(logits, axis=-1)


def fitted(logits: mx.array, vocab: int) -> mx.array:  # (1, V') -> (1, V)
    """The logits cut to a vocabulary, or filled up with tokens that cannot be drawn."""
    missing = vocab - logits.shape[-1]
    if missing <= 0:
        return logits[:, :vocab]
    return mx.concatenate([logits, mx.full((1, missing), -float("inf"))], axis=-1)


def gathered(tokens: Sequence[mx.array], laws: Sequence[mx.array | None]) -> Draft:
    """The draft of several draws, evaluated together."""
    known = [law for law in laws if law is not None]
    stacked = mx.concatenate(known, axis=0) if known else None  # (k, V)
    ids = mx.concatenate(list(tokens))
    mx.eval(ids, *([] if stacked is None else [stacked]))
    return Draft(tuple(ids.tolist()), stacked)


class DraftModel:
    """Drafts by a decoder of its own, with its own caches, which go back as the target's do.

    `model` may be any decoder of the zoo; `context` is the most tokens that it can take, None where there is no end.
    """

    needs_hidden = False

    def __init__(self, model: Any, draws: Draws, *, context: int | None = None) -> None:
        self.model, self.draws, self.context = model, draws, context
        self.text: list[int] = []
        self.caches = model.make_cache()
        self.held = 0  # tokens of the text that the caches hold, before the drafts
        self.beyond: list[int] = []  # drafts that the caches hold after them
        self._rollback = Rollback(model.plain_caches(self.caches))

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Take in the next tokens of the text; the model reads them when it drafts."""
        self.text += tokens

    def add_hidden(self, position: int, hidden: Any) -> None:
        """Nothing is made of the target's hidden states."""

    def propose(self, count: int) -> Draft:
        """The next `count` tokens by the draft model, one pass each; none where its positions would run out."""
        if self.context is not None and len(self.text) + count > self.context:
            return Draft()
        self._go_back()
        new = self.text[self.held :]
        chunk = runtime.prefill_chunk()
        while len(new) > chunk:
            self.model.backbone(mx.array([new[:chunk]]), self.caches)
            evaluate_caches(self.caches, chunk)
            self.held, new = self.held + chunk, new[chunk:]
        token, law = self.draws(self._logits(mx.array([new])))
        self.held = len(self.text)
        self._rollback.mark()
        tokens, laws = [token], [law]
        for _ in range(count - 1):
            token, law = self.draws(self._logits(token[:, None]))
            tokens.append(token)
            laws.append(law)
        draft = gathered(tokens, laws)
        self.beyond = list(draft.tokens[:-1])
        return draft

    def _go_back(self) -> None:
        """Let the caches hold a beginning of the text, and not all of it: the logits of its end are needed."""
        new = self.text[self.held :]
        kept = 0
        while kept < min(len(self.beyond), len(new) - 1) and self.beyond[kept] == new[kept]:
            kept += 1
        self.held += self._rollback.back(len(self.beyond), kept)
        self.beyond = []

    def _logits(self, tokens: mx.array) -> mx.array:  # (1, T) -> (1, V)
        return self.model.head(self.model.backbone(tokens, self.caches)[:, -1:])[:, -1]
