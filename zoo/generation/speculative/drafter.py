"""Drafters: what they propose, and how they sample it. Axes: T tokens, k drafts, D width, V vocabulary."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import mlx.core as mx

from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.stages import LogitsProcessor, stages_of

DRAFT_SEED = 0x9E3779B97F4A7C15  # makes the random keys of drafts others than those of the tokens


@frozen()
class Draft(Frozen):
    """Tokens that may come next. `probs` (k, V) are the distributions that they were sampled from, None if they were not."""

    tokens: tuple[int, ...] = ()
    probs: mx.array | None = None


class Drafter:
    """Base class of drafters: proposes the next tokens of one `text`, of which it is given each token.

    A drafter that `needs_hidden` is given the target's hidden states after the final norm, too.
    """

    needs_hidden = False

    def __init__(self) -> None:
        self.text: list[int] = []

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Append the next tokens of the text, the prompt's first."""
        self.text += tokens

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take the states (1, T, D) of the text's tokens from `position` on. Earlier states may be missing."""

    def propose(self, count: int) -> Draft:
        """At most `count` tokens that may follow the text."""
        raise NotImplementedError


class DraftSampler:
    """Samples drafts by `processors`, the target's temperature and filters; without any, drafts are greedy.

    More drafts are accepted the nearer their distribution is to the target's. The text has the target's distribution in
    any case. `seed` None: other drafts in each run.
    """

    def __init__(
        self, vocab: int, processors: Sequence[LogitsProcessor] = (), *, seed: int | None = None
    ) -> None:
        self.vocab, self.processors = vocab, processors
        self._key = mx.random.key(secrets.randbits(63) if seed is None else seed ^ DRAFT_SEED)

    def draft(self, count: int, logits: mx.array, following: Callable[[mx.array], mx.array]) -> Draft:
        """`count` tokens: the first one by `logits` (1, V'), each later one by those `following` the one before it."""
        tokens: list[mx.array] = []
        probs: list[mx.array] = []
        for index in range(count):
            token, distribution = self.sample(following(tokens[-1]) if index else logits)
            tokens.append(token)
            if distribution is not None:
                probs.append(distribution)
        ids, stacked = mx.concatenate(tokens), mx.concatenate(probs) if probs else None  # (k,), (k, V)
        mx.eval(ids, *([] if stacked is None else [stacked]))
        return Draft(tuple(ids.tolist()), stacked)  # type: ignore[arg-type]

    def sample(self, logits: mx.array) -> tuple[mx.array, mx.array | None]:  # (1, V') -> (1,), (1, V) or None
        """A token and its distribution, which is None for a greedy choice. Nothing is evaluated."""
        logits = match_vocab(logits.astype(mx.float32), self.vocab)
        if not self.processors:
            return mx.argmax(logits, axis=-1), None
        *_, (_, _, logits) = stages_of(logits, self.processors)
        self._key, use = mx.random.split(self._key)
        return mx.random.categorical(logits, key=use), mx.softmax(logits, axis=-1)


def match_vocab(logits: mx.array, vocab: int) -> mx.array:  # (1, V') -> (1, V)
    """The logits cut to a vocabulary, or padded with tokens that are never sampled."""
    missing = vocab - logits.shape[-1]
    if missing <= 0:
        return logits[:, :vocab]
    return mx.concatenate([logits, mx.full((1, missing), -float("inf"))], axis=-1)
