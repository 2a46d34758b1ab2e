"""Pairs of a better and a worse answer to one prompt, as token ids, and the log-probabilities of the answers.

A batch has the two answers of each of B pairs in rows that follow each other, the better one first. Axes: T tokens, D width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from zoo.loading import Loaded
from zoo.training import answers
from zoo.training.answers import TokenRow, answer_to
from zoo.training.examples import Preference
from zoo.training.loop import Batch
from zoo.training.loss import IGNORED, token_losses


@dataclass(frozen=True)
class PreferenceRow:
    """A prompt with its better and with its worse answer, the only targets.

    `reference` are the log-probabilities of the two answers by a reference model, where there is one.
    """

    chosen: TokenRow
    rejected: TokenRow
    reference: tuple[float, float] | None = None

    @property
    def length(self) -> int:
        """The tokens of the longer one."""
        return max(self.chosen.length, self.rejected.length)

    @property
    def cut(self) -> int:
        """The tokens that were left out."""
        return self.chosen.cut + self.rejected.cut


def encode(example: Preference, loaded: Loaded, length: int) -> list[PreferenceRow]:
    """The two rows of a preference, each of at most `length` tokens."""
    chosen, rejected = (
        answers.encode(answer_to(example.origin, example.prompt, answer), loaded, length)[-1]
        for answer in (example.chosen, example.rejected)
    )
    return [PreferenceRow(chosen, rejected)]


def collate(rows: Sequence[PreferenceRow], loaded: Loaded, order: random.Random) -> Batch:
    """Inputs and targets, (2B, T), and the log-probabilities by the reference (B, 2) where the rows have them."""
    pairs = [answer for row in rows for answer in (row.chosen, row.rejected)]
    references = [row.reference for row in rows if row.reference is not None]
    return *answers.collate(pairs, loaded, order), *([mx.array(references)] if references else [])


def pairs(batch: Batch) -> int:
    """The number of pairs of a batch, over which a loss is a mean."""
    return len(batch[0]) // 2


def answer_logprobs(model: nn.Module, inputs: mx.array, targets: mx.array) -> mx.array:
    """The log-probability of each answer, the sum over its tokens: (2B, T) -> (B, 2)."""
    return -token_losses(model(inputs), targets).sum(-1).reshape(-1, 2)


def answer_lengths(targets: mx.array) -> mx.array:
    """The number of tokens of each answer: (2B, T) -> (B, 2)."""
    return (targets != IGNORED).sum(-1).reshape(-1, 2)
