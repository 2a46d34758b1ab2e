"""Direct preference optimization (Rafailov et al., 2023, arXiv:2305.18290). Axes: B pairs, T tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn

from zoo.generation.loop.prompt import in_batches
from zoo.loading import Loaded
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import Preference
from zoo.training.loop import Stopped
from zoo_tune.objectives.preferences import PreferenceRow, answer_logprobs, collate, encode, pairs

PAIRS = 8  # whose log-probabilities are computed in one pass


def dpo(loaded: Loaded, beta: float) -> ExampleObjective:
    """The better of two answers, measured against the model before tuning, whose log-probabilities are computed once."""

    def loss(model: nn.Module, inputs: mx.array, targets: mx.array, reference: mx.array) -> mx.array:
        return dpo_loss(answer_logprobs(model, inputs, targets), reference, beta)

    return ExampleObjective((Preference,), encode, collate, loss, pairs, pairs, with_reference)


def dpo_loss(logprobs: mx.array, reference: mx.array, beta: float) -> mx.array:
    """Mean over the pairs of −log σ(β (log-ratio of the better answer − log-ratio of the worse one)), equation 7.

    The log-ratio of an answer is its log-probability less the reference's; both (B, 2), the better answer first.
    """
    ratios = logprobs - reference  # (B, 2)
    return -nn.log_sigmoid(beta * (ratios[:, 0] - ratios[:, 1])).mean()


def with_reference(
    loaded: Loaded, rows: Sequence[PreferenceRow], stop: Callable[[], bool]
) -> list[PreferenceRow]:
    """The rows with the log-probabilities of their answers by the model as it is; `Stopped` when `stop()` says so."""
    referenced = list(rows)
    for indices in in_batches(loaded, [row.length for row in rows], PAIRS):
        if stop():
            raise Stopped(0)
        inputs, targets, *_ = collate([rows[index] for index in indices], loaded, random.Random(0))
        logprobs = answer_logprobs(loaded.model, inputs, targets)
        for index, (chosen, rejected) in zip(indices, logprobs.tolist(), strict=True):
            referenced[index] = replace(rows[index], reference=(chosen, rejected))
    return referenced
