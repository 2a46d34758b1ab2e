"""One text generated with drafts: each pass over the model verifies several tokens.

Axes: T tokens of a pass, k drafts, D width, V vocabulary, N alternatives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from zoo.cache import CachePolicy
from zoo.errors import ZooError
from zoo.generation.loop.decode_step import DecodeStep
from zoo.generation.loop.step import Drafted, Step
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.sampling.logits import check_numbers, token_logprobs
from zoo.generation.speculative.drafter import Draft
from zoo.generation.speculative.rejection_sampling import accept
from zoo.generation.speculative.rollback import Rollback
from zoo.generation.speculative.throttle import DraftThrottle

if TYPE_CHECKING:
    from zoo.generation.loop.sequence import Sequence


class SpeculativeBatch:
    """One sequence that is generated with drafts, in place of a `Batch` of sequences without.

    A step makes one pass over the tokens that the caches do not hold and the drafts, and yields one token or more. The
    sampler chooses each as it would without drafts. A greedy draft is accepted when it is the token that the sampler
    chooses; a sampled draft is tested by `accept`. Between two steps the caches lack the end of the text, which the next
    pass reads: the last token, and, where caches cannot trim, the tokens accepted since their snapshot. `finished` is as
    in `Batch`.
    """

    merges = False

    def __init__(
        self,
        model: Any,
        policy: CachePolicy,
        finished: Callable[[Sequence, list[Any], list[int]], None] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model, self.policy, self.clock = model, policy, clock
        self.sequences: list[Sequence] = []
        self.cache: list[Any] = []
        self.drafted = Drafted(0, 0, 0)
        self._forward = DecodeStep(model)
        self._finished = finished

    def join(self, sequence: Sequence, cache: list[Any], logits: mx.array) -> None:
        """The text, whose prompt was read into `cache`, and by its drafter, and whose next token has `logits` (1, V)."""
        assert sequence.drafting is not None and sequence.drafter is not None
        self.drafting, self.drafter = sequence.drafting, sequence.drafter
        self.sequences, self.cache = [sequence], cache
        self.ids = list(sequence.ids)  # of the prompt and the answer
        self.held = len(self.ids)  # of these the caches hold
        # The draws of a text with a seed repeat only if the same passes have drafts, whatever the clock says.
        self.throttle = DraftThrottle(always=self.drafting.samples and sequence.settings.seed is not None)
        self._rollback = Rollback(self.model.plain_caches(cache))
        self._first: mx.array | None = logits

    def step(self) -> list[tuple[Sequence, Step]]:
        """The tokens that one pass gives; the step of an error, which ends the text, when its logits are no numbers."""
        sequence = self.sequences[0]
        if sequence.cancelled:
            self._leave()
            return []
        try:
            return self._steps(sequence)
        except ZooError as error:
            self.sequences, self.cache = [], []
            return [(sequence, sequence.failed(error))]

    def _steps(self, sequence: Sequence) -> list[tuple[Sequence, Step]]:
        """The tokens that one pass gives."""
        if self._first is not None:
            steps = self._choose(self._first[:, None], Draft())
            self._first = None
            self._grew(steps)
        else:
            steps = self._pass(sequence)
        if not sequence.finished:
            return steps
        steps[-1] = (sequence, replace(steps[-1][1], drafted=self.drafted))
        self._leave()
        return steps

    def _pass(self, sequence: Sequence) -> list[tuple[Sequence, Step]]:
        """One pass over the model, and its tokens."""
        began = self.clock()
        draft = self._draft(sequence)
        unread = self.ids[self.held :]
        read = len(unread) + len(draft.tokens)
        if draft.tokens:
            self._rollback.checkpoint(read)
        tokens = mx.array([[*unread, *draft.tokens]])  # (1, T)
        before, place = self.held, len(self.ids) - 1
        hidden = None
        if read == 1 and not self.drafter.needs_hidden:
            logits = self._forward(tokens, self.cache)[:, None]
        else:
            hidden = self.model.backbone(tokens, self.cache)[:, len(unread) - 1 :]  # (1, 1 + k, D)
            logits = self.model.head(hidden)
        steps = self._choose(logits, draft)
        found = self._grew(steps)
        self.held = before + self._rollback.keep(len(self.ids) - 1 - before, read)
        if hidden is not None and self.drafter.needs_hidden:
            self.drafter.add_hidden(place, hidden[:, : len(found)])
        self.drafted = Drafted(
            self.drafted.proposed + len(draft.tokens),
            self.drafted.accepted + common_prefix(found, list(draft.tokens)),
            self.drafted.passes + 1,
        )
        self.throttle.update(self.clock() - began, len(found), len(draft.tokens))
        return steps

    def _draft(self, sequence: Sequence) -> Draft:
        """What is drafted for the next pass, perhaps nothing."""
        most = self.drafting.count
        count = min(most, sequence.limit - len(sequence.tokens) - 1)
        if self.drafting.max_length is not None:
            count = min(count, self.drafting.max_length - len(self.ids))
        # A pass without drafts is kept whole. It has to come before the tokens to read again become too many.
        if count < 1 or len(self.ids) - self.held > 1 + most or not self.throttle.should_draft():
            return Draft()
        return self.drafter.propose(count)

    def _choose(self, logits: mx.array, draft: Draft) -> list[tuple[Sequence, Step]]:
        """The steps of a pass with `logits` (1, 1 + k, V): accepted drafts, then one token more, up to the text's end."""
        sequence = self.sequences[0]
        highest = logits.max()
        best = mx.argmax(logits[0], axis=-1) if sequence.sampler.is_greedy else None  # (1 + k,)
        mx.eval([array for array in (highest, best) if array is not None])
        check_numbers(highest.item(), f"token {len(sequence.tokens) + 1}")
        sure: Any = None if best is None else best.tolist()
        steps = []
        for place, drafted in enumerate([*draft.tokens, None]):
            if sure is not None:
                token = sure[place]
            elif drafted is None or draft.probs is None:
                token = int(sequence.sampler.choose(logits[:, place]).item())
            else:
                token = self._tested(logits[:, place], draft.probs[place], drafted)
            details: tuple[float | None, dict[int, float] | None] = (None, None)
            if sequence.settings.logprobs:
                chosen = mx.array([token])
                [details] = token_logprobs(logits[:, place], chosen, sequence.alternatives).rows()
            steps.append((sequence, sequence.update(token, *details)))
            if sequence.finished or token != drafted:
                break
        return steps

    def _tested(self, logits: mx.array, probs: mx.array, drafted: int) -> int:
        """The token in the place of a draft that was sampled from `probs` (V,), given the logits (1, V) there."""
        sampler = self.sequences[0].sampler
        return int(accept(sampler.probabilities(logits), probs, mx.array(drafted), sampler.key)[1].item())

    def _grew(self, steps: list[tuple[Sequence, Step]]) -> list[int]:
        """The tokens of the steps, which the text and the drafter now have."""
        found = [step.token for _, step in steps if step.token is not None]
        self.ids += found
        self.drafter.add_tokens(found)
        return found

    def _leave(self) -> None:
        """Let go of the text; who wants its caches is given them."""
        if self._finished is not None:
            self._finished(self.sequences[0], self.cache, self.ids[: self.held])
        self.sequences, self.cache = [], []
