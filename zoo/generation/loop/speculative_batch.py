"""One text generated with drafts: each pass over the model verifies several tokens.

Axes: T tokens of a pass, k drafts, D width, V vocabulary, N alternatives.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from zoo.generation.loop.batch import Finished
from zoo.generation.loop.batch_decoder import DecodeStep
from zoo.generation.loop.step import Drafted, Step
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.sampling.logits import check_numbers
from zoo.generation.speculative.drafters import Draft
from zoo.generation.speculative.verification import DraftThrottle, Rollback, accept

if TYPE_CHECKING:
    from zoo.generation.loop.batch import Sequence
    from zoo.loading import Loaded


class SpeculativeBatch:
    """One sequence that is generated with drafts, in place of a `Batch` of sequences without.

    `cache` and the sequence's drafter have its prompt, and `logits` (1, V) are of its next token.

    A step makes one pass over the tokens that the caches do not hold and the drafts, and yields one token or more. The
    sampler chooses each as it would without drafts. A greedy draft is accepted when it is the token that the sampler
    chooses; a sampled draft is tested by `accept`. Between two steps the caches lack the end of the text, which the next
    pass reads: the last token, and, where caches cannot trim, the tokens accepted since their snapshot. `finished` and
    `outgrown` are as in `Batch`.
    """

    def __init__(
        self,
        loaded: Loaded,
        sequence: Sequence,
        cache: list[Any],
        logits: mx.array,
        finished: Finished | None = None,
    ) -> None:
        assert sequence.drafting is not None and sequence.drafter is not None
        self.loaded, self.model = loaded, loaded.model
        self.drafting, self.drafter = sequence.drafting, sequence.drafter
        self._forward = DecodeStep(self.model)
        self._finished = finished
        self.sequences, self.cache = [sequence], cache
        self.outgrown: list[Sequence] = []
        self.ids = list(sequence.text)
        self.cached = len(self.ids)  # of these in the caches
        # With a seed, the same passes must have drafts in each run, whatever time they take.
        self.throttle = DraftThrottle(always=self.drafting.samples and sequence.settings.seed is not None)
        self._rollback = Rollback(self.model.plain_caches(cache))
        self._first: mx.array | None = logits

    def step(self) -> list[tuple[Sequence, Step]]:
        """The steps of the prompt's logits, then of a pass. ZooError for logits that are no numbers."""
        sequence = self.sequences[0]
        if sequence.cancelled:
            self._finish()
            return []
        if any(self.cached <= switch < len(self.ids) for switch in self.model.angles.switches):
            self.outgrown = [sequence]
            self._finish()
            return []
        if self._first is not None:
            steps = self._choose(self._first[:, None], Draft())
            self._first = None
        else:
            steps = self._pass(sequence)
        if sequence.finished:
            steps[-1] = (sequence, replace(steps[-1][1], drafted=sequence.drafted))
            self._finish()
        return steps

    def _pass(self, sequence: Sequence) -> list[tuple[Sequence, Step]]:
        """Draft, run the model once, and keep what is accepted."""
        began = time.perf_counter()
        draft = self._draft(sequence)
        unread = self.ids[self.cached :]
        read = len(unread) + len(draft.tokens)
        if draft.tokens:
            self._rollback.checkpoint(read)
        tokens = mx.array([[*unread, *draft.tokens]])  # (1, T)
        before, place = self.cached, len(self.ids) - 1
        hidden = None
        if read == 1 and not self.drafter.needs_hidden:
            logits = self._forward(tokens, self.cache)[:, None]
        else:
            hidden = self.model.backbone(tokens, self.cache)[:, len(unread) - 1 :]  # (1, 1 + k, D)
            logits = self.model.head(hidden)
        steps = self._choose(logits, draft)
        produced = self.ids[place + 1 :]
        self.cached = before + self._rollback.keep(len(self.ids) - 1 - before, read)
        if hidden is not None and self.drafter.needs_hidden:
            self.drafter.add_hidden(place, hidden[:, : len(produced)])
        before_pass = sequence.drafted
        sequence.drafted = Drafted(
            before_pass.proposed + len(draft.tokens),
            before_pass.accepted + common_prefix(produced, list(draft.tokens)),
            before_pass.passes + 1,
        )
        took = self.loaded.agreed(time.perf_counter() - began)
        self.throttle.update(took, len(produced), len(draft.tokens))
        return steps

    def _draft(self, sequence: Sequence) -> Draft:
        """The draft of the next pass, which may be empty."""
        most = self.drafting.count
        count = min(most, sequence.limit - len(sequence.tokens) - 1)
        end = self.model.angles.end(len(self.ids))
        if end is not None:
            count = min(count, end - len(self.ids))
        # A pass without drafts is never rolled back: it keeps the number of tokens to read again small.
        if count < 1 or len(self.ids) - self.cached > 1 + most or not self.throttle.should_draft():
            return Draft()
        return self.drafter.propose(count)

    def _choose(self, logits: mx.array, draft: Draft) -> list[tuple[Sequence, Step]]:
        """The steps of a pass with `logits` (1, 1 + k, V): accepted drafts, then one token more, up to the text's end.

        Their tokens are appended to the text.
        """
        sequence = self.sequences[0]
        highest = logits.max()
        best = mx.argmax(logits[0], axis=-1) if sequence.sampler.is_greedy else None  # (1 + k,)
        mx.eval([array for array in (highest, best) if array is not None])
        check_numbers(highest.item(), f"token {len(sequence.tokens) + 1}")
        greedy: Any = None if best is None else best.tolist()
        tokens, steps = [], []
        for place, drafted in enumerate([*draft.tokens, None]):
            if greedy is not None:
                token = greedy[place]
            elif drafted is None or draft.probs is None:
                token = int(sequence.sampler.choose(logits[:, place]).item())
            else:
                wanted, key = sequence.sampler.probabilities(logits[:, place]), sequence.sampler.key
                token = int(accept(wanted, draft.probs[place], mx.array(drafted), key)[1].item())
            tokens.append(token)
            steps.append((sequence, sequence.choose(token, logits[:, place])))
            if sequence.finished or token != drafted:
                break
        self.ids += tokens
        self.drafter.add_tokens(tokens)
        return steps

    def _finish(self) -> None:
        """Drop the text, and give its caches to `finished`."""
        if self._finished is not None:
            self._finished(self.sequences[0], self.cache, 0, self.ids[: self.cached])
        self.sequences, self.cache = [], []
