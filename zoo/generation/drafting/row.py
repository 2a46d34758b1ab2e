"""One text generated with drafts: each pass over the model verifies several tokens.

Axes: T tokens of a pass, k drafts, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo.frozen import Frozen, frozen
from zoo.generation.choosing.logits import check_numbers
from zoo.generation.choosing.logits import logprobs as log_probabilities
from zoo.generation.drafting.acceptance import accept
from zoo.generation.drafting.drafter import Draft, Drafter
from zoo.generation.drafting.model import TESTS, key_of
from zoo.generation.drafting.pays import BreakEven
from zoo.generation.drafting.rollback import Rollback
from zoo.generation.text import Decoded


@frozen()
class Acceptance(Frozen):
    """How drafting went: tokens drafted and those of them accepted; passes over the model, and those with drafts.

    `tokens` were generated in all these passes.
    """

    drafted: int = 0
    accepted: int = 0
    passes: int = 0
    drafted_passes: int = 0
    tokens: int = 0

    @property
    def rate(self) -> float | None:
        """The share of the drafts that were accepted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    def __add__(self, other: Acceptance) -> Acceptance:
        names = self.__dataclass_fields__
        return Acceptance(**{name: getattr(self, name) + getattr(other, name) for name in names})


class DraftedRow:
    """The rest of a text whose beginning is read: `step` makes one pass, which gives one token or more.

    `caches` hold all of `text` (ids) but its end, at least one token, which the first pass reads. At most `count` tokens
    are drafted a pass. `limit` more tokens are generated at most, none after one of `ends`. `chooser` chooses each
    token as it does without drafts: where drafts are certain (`Draft.laws` None) one stands when it is the token that the
    chooser chooses, which is rejection sampling for a law that is certain; a drawn one is accepted by `accept`, with
    keys of `seed`. `steady`: no token is drafted past so many (`steady_length`). `pays` decides when to draft.

    `text` grows with each step. Whenever a step is over the caches hold its first `held` tokens.
    """

    def __init__(
        self,
        model: Any,
        caches: Sequence[Any],
        text: Sequence[int],
        held: int,
        chooser: Any,
        drafter: Drafter,
        *,
        count: int,
        limit: int,
        ends: frozenset[int] = frozenset(),
        logprobs: bool | int = False,
        seed: int | None = None,
        steady: int | None = None,
        pays: BreakEven | None = None,
    ) -> None:
        self.model, self.caches, self.chooser, self.drafter = model, caches, chooser, drafter
        self.text, self.held = list(text), held
        self.count, self.left, self.ends, self.steady = count, limit, ends, steady
        self.wanted = logprobs
        self.pays = pays or BreakEven()
        self.acceptance = Acceptance()
        self.done = limit == 0
        self._rollback = Rollback(caches)
        self._key = key_of(seed, TESTS)

    def step(self) -> list[Decoded]:
        """One pass: the tokens that it gives, each with its log-probability and alternatives where asked for.

        ZooError when the model's logits are no numbers.
        """
        began = self.pays.clock()
        draft = self._draft()
        unread = self.text[self.held :]
        tokens = [*unread, *draft.tokens]
        if draft.tokens:
            self._rollback.mark()
        hidden = self.model.backbone(mx.array([tokens]), self.caches)[:, len(unread) - 1 :]  # (1, 1 + k, D)
        logits = self.model.head(hidden)  # (1, 1 + k, V)
        found = self._choose(logits, draft)
        self._take(found, hidden, len(tokens))
        accepted = agreeing(found, draft.tokens)
        self.acceptance += Acceptance(len(draft.tokens), accepted, 1, bool(draft.tokens), len(found))
        decoded = self._decoded(found, logits)
        self.pays.took(self.pays.clock() - began, len(found), len(draft.tokens))
        return decoded

    def _draft(self) -> Draft:
        """What is drafted for the next pass, perhaps nothing."""
        count = min(self.count, self.left - 1)
        if self.steady is not None:
            count = min(count, self.steady - len(self.text))
        # A pass without drafts is kept whole. It has to come before the tokens to read again become too many.
        if count < 1 or len(self.text) - self.held > 1 + self.count or not self.pays.wants():
            return Draft()
        return self.drafter.propose(count)

    def _choose(self, logits: mx.array, draft: Draft) -> list[int]:
        """The tokens that a pass gives: accepted drafts, then one more, unless an end token came before."""
        highest = logits.max()
        best = mx.argmax(logits[0], axis=-1) if self.chooser.plain else None  # (1 + k,)
        mx.eval(highest, *([] if best is None else [best]))
        check_numbers(highest.item(), f"token {len(self.text) + 1}")
        sure = None if best is None else best.tolist()
        found: list[int] = []
        for place, drafted in enumerate([*draft.tokens, None]):
            if sure is not None:
                token = sure[place]
            elif drafted is None or draft.laws is None:
                token = int(self.chooser.choose(logits[:, place]).item())
            else:
                token = self._accepted(logits[:, place], draft.laws[place], drafted)
            self.chooser.took(token)
            found.append(token)
            if token != drafted or token in self.ends:
                break
        return found

    def _accepted(self, logits: mx.array, law: mx.array, drafted: int) -> int:
        """The token in the place of a draft that was drawn from `law` (V,), given the logits (1, V) there."""
        self._key, use = mx.random.split(self._key)
        target = mx.softmax(self.chooser.scores(logits)[0], axis=-1)  # (V,)
        return int(accept(target, law, mx.array(drafted), use)[1].item())

    def _take(self, found: list[int], hidden: mx.array, read: int) -> None:
        """Let the text grow by the tokens found, and the caches go back to it without the last of these."""
        before = self.held
        self.text += found
        self.left -= len(found)
        self.done = self.left == 0 or found[-1] in self.ends
        self.held = before + self._rollback.back(read, len(self.text) - 1 - before)
        self.drafter.read(found, hidden[:, : len(found)] if self.drafter.reads_hidden else None)

    def _decoded(self, found: list[int], logits: mx.array) -> list[Decoded]:
        """The tokens with what is asked for of their log-probabilities."""
        if not self.wanted:
            return [(token, None, None) for token in found]
        each = log_probabilities(logits[0, : len(found)])  # (T, V)
        own = mx.take_along_axis(each, mx.array(found)[:, None], axis=-1)[:, 0].tolist()
        count = 0 if isinstance(self.wanted, bool) else self.wanted
        if not count:
            return [(token, logprob, None) for token, logprob in zip(found, own, strict=True)]
        best = mx.argsort(-each, axis=-1)[:, :count]  # (T, n)
        theirs = mx.take_along_axis(each, best, axis=-1).tolist()
        tables = [dict(zip(ids, row, strict=True)) for ids, row in zip(best.tolist(), theirs, strict=True)]
        return list(zip(found, own, tables, strict=True))


def agreeing(found: Sequence[int], drafted: Sequence[int]) -> int:
    """How many tokens at the start of two lists are the same: the drafts that were accepted."""
    same = (one == other for one, other in zip(found, drafted, strict=False))
    return next((place for place, equal in enumerate(same) if not equal), min(len(found), len(drafted)))
