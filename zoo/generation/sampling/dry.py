"""DRY ("don't repeat yourself"): a penalty of the tokens that would go on with a repetition. Axes: V vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlx.core as mx

from zoo.generation.sampling.banned import SequenceCompletions
from zoo.generation.sampling.suffix_automaton import SuffixAutomaton

LONGEST = 50  # tokens beyond the allowed length from which on the penalty does not grow
HIGHEST = 1e30  # a penalty that float32 holds


class Dry:
    """The penalty of one sequence: `multiplier` · `base` ** (n - `allowed`), taken from the logit of a token.

    n is the length of the longest run at the end of the text that was there before, followed by that token; below
    `allowed` there is no penalty. No run goes across one of `breakers`, each a run of tokens, and a breaker of one token
    is never penalised. The prompt, `given`, counts. DRY, by p-e-w, has no paper; this is text-generation-webui's and
    llama.cpp's penalty.
    """

    def __init__(
        self,
        multiplier: float,
        base: float,
        allowed: int,
        breakers: Iterable[Sequence[int]] = (),
        given: Sequence[int] = (),
    ) -> None:
        self.multiplier, self.base, self.allowed = multiplier, base, allowed
        runs = [tuple(run) for run in breakers]
        self._single = frozenset(run[0] for run in runs if len(run) == 1)
        self._several = SequenceCompletions(run for run in runs if len(run) > 1)
        self._repeats = SuffixAutomaton(allowed + LONGEST)
        for token in given:
            self.update(token)

    def penalties(self) -> dict[int, float]:
        """What is taken from the logits of which tokens."""
        return {
            token: min(self.multiplier * self.base ** (length - self.allowed), HIGHEST)
            for token, length in self._repeats.continuations(self.allowed).items()
        }

    def __call__(self, logits: mx.array) -> mx.array:
        """The penalised logits, (1, V) -> (1, V)."""
        penalties = {token: value for token, value in self.penalties().items() if token < logits.shape[-1]}
        if not penalties:
            return logits
        return logits.at[:, mx.array(list(penalties))].subtract(mx.array(list(penalties.values())))

    def update(self, token: int) -> None:
        """One more token of the text."""
        broken = token in self._several.completing()
        self._several.update(token)
        if broken or token in self._single:
            self._repeats.cut()
        else:
            self._repeats.add(token)
