"""Objectives of tuning: how examples of data become rows of token ids, rows become batches, and the loss of a batch.

Axes: B rows, T tokens a row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from zoo.loading import Loaded
from zoo.training.data_parallel import mean_loss, rows_in
from zoo.training.examples import Example
from zoo.training.loop import Batch, Loss
from zoo.training.loss import scored_targets


class Row(Protocol):
    """A sequence, or several, of an encoded example. `length`: tokens of its longest sequence; `cut`: tokens left out because it was too long."""

    @property
    def length(self) -> int: ...

    @property
    def cut(self) -> int: ...


@dataclass(frozen=True)
class ExampleObjective:
    """An objective that takes single examples.

    `takes` are the kinds of example. `encode(example, loaded, length)` gives the rows of an example, each cut to `length`
    tokens; most give one, a conversation several where its template writes earlier answers otherwise. It raises
    ZooError, without the example's origin, for an example that cannot be used. `collate(rows, loaded, order)` pads rows to
    a batch; what it draws comes from `order`. `loss(model, *batch)` is a mean over `weight(batch)` items. Ranks divide a
    batch in at most `examples_in(batch)` parts, along the first axis of its arrays: the loss of the batch is the mean of
    theirs, each counted by its weight. 1 where the loss compares the examples of a batch with each other.
    `prepare(loaded, rows, stop)`, if any, is called once with the rows and the model before it is changed, and gives the
    rows in their place: with the log-probabilities of a reference model, for example. It raises `Stopped` when `stop()`
    says so.
    """

    takes: tuple[type[Example], ...]
    encode: Callable[[Any, Loaded, int], Sequence[Row]]  # of an example of these kinds
    collate: Callable[[Sequence[Any], Loaded, random.Random], Batch]
    loss: Loss
    weight: Callable[[Batch], float] = scored_targets
    examples_in: Callable[[Batch], int] = rows_in
    prepare: Callable[[Loaded, Sequence[Any], Callable[[], bool]], Sequence[Any]] | None = None


@dataclass(frozen=True)
class ExampleBatches:
    """The batches of rows: `trained` again and again in an order that the seed decides, and the `held_out` once.

    Rows of like length share a batch of `batch` rows, the last one of a round perhaps fewer.
    """

    objective: ExampleObjective
    loaded: Loaded
    trained: Sequence[Row]
    held_out: Sequence[Row]
    batch: int
    seed: int

    def training(self) -> Iterator[Batch]:
        """Batches without end."""
        order = random.Random(self.seed)
        while True:
            groups = self._groups(self.trained, order)
            order.shuffle(groups)
            for group in groups:
                yield self.objective.collate(group, self.loaded, order)

    def validation(self) -> Iterator[Batch]:
        """The batches of the held-out rows, always the same."""
        order = random.Random(self.seed)
        for group in self._groups(self.held_out, order):
            yield self.objective.collate(group, self.loaded, order)

    def _groups(self, rows: Sequence[Row], order: random.Random) -> list[list[Row]]:
        """All rows in groups of similar length; rows of equal length in random order."""
        mixed = sorted(order.sample(rows, len(rows)), key=lambda row: row.length)
        return [mixed[start : start + self.batch] for start in range(0, len(mixed), self.batch)]

    def longest(self) -> list[Row]:
        """The rows of the batch that takes the most memory."""
        return sorted(self.trained, key=lambda row: row.length)[-self.batch :]

    def held_out_loss(self, model: nn.Module, stop: Callable[[], bool] = lambda: False) -> float | None:
        """The mean loss of the held-out rows; None when there are none, or `stop` says so before it is known."""
        return mean_loss(model, self.objective.loss, self.objective.weight, self.validation(), stop)


def padded_ids(rows: Sequence[Sequence[int]], fill: int) -> mx.array:
    """Rows of ids padded on the right by `fill`: (B, T)."""
    width = max(map(len, rows))
    return mx.array([[*row, *[fill] * (width - len(row))] for row in rows])
