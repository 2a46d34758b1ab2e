"""The objective of a prefix language model: each next token after a prompt. Axes: B rows, T tokens, V vocabulary."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from zoo.loading import Loaded
from zoo.tokenizer import Tokenizer
from zoo.training import answers
from zoo.training.answers import TokenRow
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import Completion, TextExample
from zoo.training.loop import Batch
from zoo.training.loss import IGNORED, cross_entropy
from zoo.training.objective import TrainingObjective, documents, next_tokens
from zoo.training.record import TrainingSettings


def prefix_lm(texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings) -> Iterator[Batch]:
    """Next-token batches with a prefix of random length, 1 … T/2, whose tokens see each other: the third array, (B,).

    The inputs show the targets within the prefix, so these are ignored.
    """
    for (inputs, targets), key in zip(
        next_tokens(texts, tokenizer, settings), random_keys(settings.seed), strict=False
    ):
        prefix = mx.random.randint(1, inputs.shape[1] // 2 + 1, inputs.shape[:1], key=key)  # (B,)
        yield inputs, _after(prefix, targets), prefix


def prefix_lm_validation(
    texts: Iterable[str], tokenizer: Tokenizer, settings: TrainingSettings
) -> Iterator[Batch]:
    """Validation batches of a prefix LM: one document a row, its first half the prefix."""
    for inputs, targets in documents(texts, tokenizer, settings):
        prefix = mx.maximum((targets != IGNORED).sum(axis=1) // 2, 1)  # (B,)
        yield inputs, _after(prefix, targets), prefix


def _after(prefix: mx.array, targets: mx.array) -> mx.array:
    """The targets (B, T), ignored where a prefix of `prefix` (B,) tokens holds them."""
    return mx.where(mx.arange(targets.shape[1]) >= prefix[:, None] - 1, targets, IGNORED)


def prefix_lm_loss(model: Any, inputs: mx.array, targets: mx.array, prefix: mx.array) -> mx.array:
    """The loss of a prefix LM's answer."""
    return cross_entropy(model(inputs, prefix=prefix), targets)


def random_keys(seed: int) -> Iterator[mx.array]:
    """An endless stream of random keys, the same for the same seed."""
    key = mx.random.key(seed)
    while True:
        key, own = mx.random.split(key)
        yield own


@dataclass(frozen=True)
class PrefixRow(TokenRow):
    """A text, or a prompt of `prompt` tokens and its completion."""

    prompt: int | None = None


def encode(example: TextExample | Completion, loaded: Loaded, length: int) -> list[PrefixRow]:
    """The rows of a text, or the row of a prompt and its completion, each of at most `length` tokens."""
    return [
        PrefixRow(
            row.ids, row.targets, row.cut, row.prompt_length if isinstance(example, Completion) else None
        )
        for row in answers.encode(example, loaded, length)
    ]


def collate(rows: Sequence[PrefixRow], loaded: Loaded, order: random.Random) -> Batch:
    """Inputs (B, T), targets (B, T) and the length of the prefix (B,): the prompt, or 1 … T/2 tokens of a text."""
    inputs, targets = answers.collate(rows, loaded, order)
    prefix = mx.array([row.prompt or order.randint(1, max(row.length // 2, 1)) for row in rows])  # (B,)
    return inputs, _after(prefix, targets), prefix


PREFIX_LM = TrainingObjective(
    prefix_lm,
    prefix_lm_validation,
    prefix_lm_loss,
    running=True,
    examples=ExampleObjective((TextExample, Completion), encode, collate, prefix_lm_loss),
)
