"""`BeamConfig`: how hypotheses are scored and when a beam search stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zoo.errors import PromptError


@dataclass(frozen=True)
class BeamConfig:
    """How a beam search scores and stops. The score of a finished hypothesis is Σ log p / length ** `length_penalty`.

    `early_stopping` True ends the search once there are `count` finished ones; False, once the best running one
    would not beat the worst of them at its present length; "never", at the length that favours it most.

    Of several `groups` each searches with its share of the beams, one after the other at every step; `diversity` is
    taken from a token's log-probability for each hypothesis of the groups before that has just chosen it (Vijayakumar
    et al., 2016, equation 5, with the Hamming diversity). `returned` texts are found, the best of all groups.
    PromptError for values that do not go together.
    """

    count: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    groups: int = 1
    diversity: float = 0.0
    returned: int = 1

    def __post_init__(self) -> None:
        if self.count % self.groups:
            raise PromptError(f"`beam_groups` must divide the {self.count} `beams`, got {self.groups}")
        if self.groups > 1 and not self.diversity:
            raise PromptError("`beam_groups` needs a `diversity_penalty` above 0: all groups find the same")
        if self.groups == 1 and self.diversity:
            raise PromptError("`diversity_penalty` needs several `beam_groups`")
        if self.returned > self.count:
            raise PromptError(
                f"`return_sequences` must lie in 1..{self.count}, the number of `beams`, got {self.returned}"
            )

    @property
    def width(self) -> int:
        """How many hypotheses run in a group."""
        return self.count // self.groups

    def score(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens whose log-probabilities sum to `total`."""
        return total / length**self.length_penalty

    def cannot_improve(self, best: float, finished: Sequence[Hypothesis], length: int, limit: int) -> bool:
        """Whether no running hypothesis can beat the finished ones; the best running one sums to `best`."""
        if len(finished) < self.width:
            return False
        if self.early_stopping is True:
            return True
        favourable = limit if self.early_stopping == "never" and self.length_penalty > 0 else length
        return self.score(best, favourable) <= min(hypothesis.score for hypothesis in finished)


@dataclass(frozen=True)
class Hypothesis:
    """The new tokens of one row and their score: while it runs, the sum of their log-probabilities in nats."""

    tokens: tuple[int, ...]
    score: float
