"""Distillation: the next token as a larger model predicts it. Axes: B rows, T tokens, V vocabulary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.errors import PromptError
from zoo.generation.vocabulary import load_same_vocabulary
from zoo.loading import Loaded
from zoo.training.answers import ANSWERS
from zoo.training.example_objective import ExampleObjective
from zoo.training.loss import IGNORED


def distill(loaded: Loaded, temperature: float, teacher: Any = None) -> ExampleObjective:
    """Kullback-Leibler divergence from a teacher's next-token distribution (Hinton et al., 2015, section 2).

    `teacher` is what `zoo.load` takes, or a loaded model. Its logits are computed for each batch. PromptError without
    one, and for one that is no causal decoder or has other tokens.
    """
    if teacher is None:
        raise PromptError("objective distill: give a `teacher`, the model to learn from")
    model = load_same_vocabulary(loaded, teacher, "teacher").model

    def loss(student: nn.Module, inputs: mx.array, targets: mx.array) -> mx.array:
        given = mx.stop_gradient(model(inputs))  # (B, T, V)
        return divergence(given, student(inputs), targets, temperature)

    return replace(ANSWERS, loss=loss)


def divergence(teacher: mx.array, student: mx.array, targets: mx.array, temperature: float) -> mx.array:
    """Mean over the targets (B, T) that are not ignored of temperature² · KL(teacher ‖ student), in nats.

    Both logits (B, T, V) are divided by the temperature; its square keeps the size of the gradients. Columns that only one
    of the two has, those of a padded vocabulary, are left out.
    """
    width = min(teacher.shape[-1], student.shape[-1])
    ours, theirs = (
        nn.log_softmax(logits[..., :width].astype(mx.float32) / temperature) for logits in (student, teacher)
    )
    losses = (mx.exp(theirs) * (theirs - ours)).sum(-1)  # (B, T)
    kept = targets != IGNORED
    return temperature**2 * (losses * kept).sum() / mx.maximum(kept.sum(), 1)
