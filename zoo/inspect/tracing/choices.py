"""How each token was chosen: the logits, and the distribution after each step of sampling.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.frozen import Frozen, frozen
from zoo.generation.sampling.logits import LogitsStage, RecordChoice
from zoo.generation.settings import Settings


@dataclass
class ChosenSequence:
    """The choices of one sequence in order: the stages of each, and the tokens that were chosen from the last.

    Token by token, the logits are (1, V) and the tokens (1,). Masked diffusion chooses a whole block: (1, L, V), (1, L).
    """

    settings: Settings
    choices: list[tuple[Sequence[LogitsStage], mx.array]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The ids that were chosen."""
        return [int(id) for _, tokens in self.choices for id in tokens.reshape(-1).tolist()]


class ChoiceRecorder:
    """Keeps how every sequence of a run chooses its tokens: what `zoo.generation.sampling.logits.observed` takes."""

    def __init__(self) -> None:
        self.sequences: list[ChosenSequence] = []

    def sequence(self, settings: Settings) -> RecordChoice:
        """Begin one more sequence."""
        begun = ChosenSequence(settings)
        self.sequences.append(begun)
        return lambda stages, tokens: begun.choices.append((stages, tokens))

    def one_by_one(self, tokens: Sequence[int]) -> ChosenSequence | None:
        """The sequence, chosen token by token, that begins with `tokens`; None if there is none."""
        begun = (s for s in self.sequences if tokens and s.tokens[: len(tokens)] == tokens)
        return next((s for s in begun if s.choices[0][1].ndim == 1), None)

    def blocks(self) -> ChosenSequence | None:
        """The sequence whose choices are of whole blocks; None where there is none."""
        return next((s for s in self.sequences if s.choices and s.choices[0][1].ndim > 1), None)


@frozen()
class ChoiceStage(Frozen):
    """The distribution after one step of sampling: that of a setting, by its name and value, or "model".

    `kept` tokens have a probability above zero. `probabilities` are those of the choice's `shown` tokens, in their order.
    """

    name: str
    setting: float | None
    kept: int
    probabilities: tuple[float, ...]


@frozen()
class Choice(Frozen):
    """How one generated token was chosen.

    The token was drawn from the last of the `stages`. If no temperature is among them, it is the most likely one.
    `candidates` are token ids with the model's `logits`: first the model's most likely, most likely first, then the most
    likely of the last stage, then the chosen token. `logsumexp` is that of all logits, so that exp(logit − logsumexp) is a
    token's probability. `entropy_bits` and `rank`, from 0, of the chosen token are those of the model's own distribution.
    The other tokens are put in at most 64 groups of similar logits, most likely first: `rest_logits` has the mean logit
    of each group, `rest_counts` the number of its tokens. `shown` are the candidates whose probabilities the stages have.
    """

    token: int
    rank: int
    logsumexp: float
    entropy_bits: float
    candidates: tuple[int, ...]
    logits: tuple[float, ...]
    rest_logits: tuple[float, ...]
    rest_counts: tuple[int, ...]
    shown: tuple[int, ...]
    stages: tuple[ChoiceStage, ...]


def choice_of(token: int, stages: Sequence[LogitsStage], settings: Settings, count: int) -> Choice:
    """How `token` was chosen by `settings`. `stages` have logits (1, V); the `count` likeliest of the first and the last are candidates."""
    row, last = (np.array(stage.logits[0]) for stage in (stages[0], stages[-1]))
    order = np.argsort(-row, kind="stable")
    likeliest = [id for id in np.argsort(-last, kind="stable")[:count] if last[id] > -np.inf]
    shown = tuple(dict.fromkeys(int(id) for id in (*order[:count], *likeliest, token)))
    total = float(mx.logsumexp(stages[0].logits).item())
    own = np.exp(row - total)
    rest = _grouped(np.delete(row, shown))
    return Choice(
        token=token,
        rank=int(np.nonzero(order == token)[0][0]),
        logsumexp=total,
        entropy_bits=-float(np.sum(own * np.log2(np.maximum(own, 1e-30)))),
        candidates=shown,
        logits=tuple(float(row[id]) for id in shown),
        rest_logits=tuple(mean for mean, _ in rest),
        rest_counts=tuple(number for _, number in rest),
        shown=shown,
        stages=tuple(_stage(stage, settings, shown) for stage in stages),
    )


def _grouped(logits: np.ndarray, groups: int = 64) -> list[tuple[float, int]]:
    """The mean and the number of the logits of each group: those between two of `groups` + 1 evenly spaced values."""
    logits = logits[np.isfinite(logits)]
    if not logits.size:
        return []
    edges = np.linspace(logits.min(), logits.max(), groups + 1)[1:-1]
    of = np.digitize(logits, edges)
    counts = np.bincount(of, minlength=groups)
    sums = np.bincount(of, weights=logits, minlength=groups)
    return [(float(sums[g] / counts[g]), int(counts[g])) for g in range(groups)[::-1] if counts[g]]


def _stage(stage: LogitsStage, settings: Settings, shown: Sequence[int]) -> ChoiceStage:
    probabilities = np.array(mx.softmax(stage.logits[0], axis=-1))
    kept = int((np.array(stage.logits[0]) > -np.inf).sum())
    value: Any = getattr(settings, stage.name, None)
    if stage.name == "exponential_decay_length_penalty":
        _, value = value
    number = float(value) if isinstance(value, int | float) else None
    return ChoiceStage(stage.name, number, kept, tuple(float(probabilities[id]) for id in shown))
