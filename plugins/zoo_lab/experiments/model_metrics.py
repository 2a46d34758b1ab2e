"""Measurements of models: losses by position, bits a byte, the load of experts. Axes: B, T, E, k."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.generation.sampling.logits import logprobs
from zoo.inspect.divergence import kl_divergence
from zoo.training.corpora import corpus
from zoo.training.data import IGNORED, padded
from zoo.training.loss import token_losses
from zoo.training.objective import END, next_tokens, token
from zoo.training.record import TrainingSettings


def held_out(name: str = "atlas") -> list[str]:
    """The held-out documents of a corpus."""
    return list(corpus(name, "generate").validation())


def loss_by_position(loaded: Any, settings: TrainingSettings, batches: int) -> list[float]:
    """The held-out loss at each position of rows of `settings.length` tokens, in nats, over `batches` batches."""
    total, rows = mx.zeros((settings.length,)), 0
    for inputs, targets in islice(next_tokens(held_out(), loaded.tokenizer, settings), batches):
        total = total + token_losses(loaded.model(inputs), targets).sum(axis=0)  # (T,)
        rows += inputs.shape[0]
        mx.eval(total)
    return [value / rows for value in total.tolist()]


def bits_a_byte(loaded: Any, texts: Sequence[str]) -> float:
    """−log2 p(text) over the texts, each with the token that ends it, a byte of their UTF-8."""
    nats = 0.0
    for inputs, targets in text_batches(loaded, texts):
        nats += token_losses(loaded.model(inputs), targets).sum().item()
    return nats / math.log(2) / sum(len(text.encode()) for text in texts)


def text_batches(loaded: Any, texts: Sequence[str]) -> Iterator[tuple[mx.array, mx.array]]:
    """Inputs (B, T) and targets (B, T) of whole texts, one a row; padding is ignored."""
    end = token(loaded.tokenizer, END)
    return padded(texts, loaded.tokenizer.encode, batch=64, end=end)


def divergence(loaded: Any, other: Any, texts: Sequence[str]) -> float:
    """Mean over the texts' tokens of KL(loaded ‖ other) of the next one, in nats."""
    total = count = 0.0
    for inputs, targets in text_batches(loaded, texts):
        wanted, found = (logprobs(model(inputs)) for model in (loaded.model, other.model))  # (B, T, V)
        each = kl_divergence(wanted, found) * (targets != IGNORED)  # (B, T)
        total += each.sum().item()
        count += (targets != IGNORED).sum().item()
    return total / count


class Recording(nn.Module):
    """A router that counts which experts it chooses."""

    def __init__(self, router: Any, experts: int) -> None:
        super().__init__()
        self._router, self._counts = router, [0] * experts

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:  # (B, T, D) -> (B, T, k), (B, T, k)
        indices, weights = self._router(x)
        for index in indices.flatten().tolist():
            self._counts[index] += 1
        return indices, weights


@contextmanager
def recorded(model: Any) -> Iterator[list[Recording]]:
    """Within the block every router of a model's layers is counted; they are given a layer after the other."""
    parts = [layer.feedforward for layer in model.layers]
    routers = [part.router for part in parts]
    recordings = [Recording(router, router.spec.experts) for router in routers]
    try:
        for part, recording in zip(parts, recordings, strict=True):
            part.router = recording
        yield recordings
    finally:
        for part, router in zip(parts, routers, strict=True):
            part.router = router


def expert_loads(loaded: Any, documents: int) -> list[list[float]]:
    """By layer, each expert's share of the choices on held-out text, times the number of experts: 1 is even."""
    with recorded(loaded.model) as recordings:
        for inputs, _ in text_batches(loaded, held_out()[:documents]):
            mx.eval(loaded.model(inputs))
    loads = []
    for recording in recordings:
        counts = recording._counts
        loads.append([len(counts) * count / sum(counts) for count in counts])
    return loads
