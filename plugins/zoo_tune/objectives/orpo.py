"""Odds ratio preference optimization (Hong et al., 2024, arXiv:2403.07691). Axes: B pairs, T tokens."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo.loading import Loaded
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import Preference
from zoo_tune.objectives.preferences import answer_lengths, answer_logprobs, collate, encode, pairs

CERTAIN = -1e-6  # mean log-probabilities above this one are lowered to it: the odds of 1 are infinite


def orpo(loaded: Loaded, beta: float) -> ExampleObjective:
    """The better of two answers by the ratio of their odds, with its next-token loss; there is no reference model."""

    def loss(model: nn.Module, inputs: mx.array, targets: mx.array) -> mx.array:
        return orpo_loss(answer_logprobs(model, inputs, targets) / answer_lengths(targets), beta)

    return ExampleObjective((Preference,), encode, collate, loss, pairs, pairs)


def orpo_loss(logprobs: mx.array, beta: float) -> mx.array:
    """Mean over the pairs of −log P(better) − β log σ(log odds(better) − log odds(worse)), equations 3 to 7.

    The log-probabilities log P (B, 2) are means over an answer's tokens, the better answer first; odds = P / (1 − P).
    """
    certain = mx.minimum(logprobs, CERTAIN)
    log_odds = certain - mx.log(-mx.expm1(certain))  # (B, 2)
    ratio = nn.log_sigmoid(log_odds[:, 0] - log_odds[:, 1])
    return (-logprobs[:, 0] - beta * ratio).mean()
