"""Data parallelism: each rank computes the gradients of its part of a batch, and all ranks make the same step.

A step of several ranks is that of one rank with the whole batch, within rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from zoo.errors import ZooError
from zoo.runtime import ranks


def rows_per_rank(batch: int) -> int:
    """The most rows that a rank gets of a batch; ZooError for a batch with fewer rows than there are ranks."""
    if batch < ranks.size():
        raise ZooError(f"`batch`: {batch} is fewer than the {ranks.size()} ranks that share its rows")
    return -(-batch // ranks.size())


def rows_in(batch: tuple[mx.array, ...]) -> int:
    """The rows of a batch."""
    return len(batch[0])


def part_of(batch: tuple[mx.array, ...], examples: int) -> tuple[mx.array, ...]:
    """This rank's part of a batch of so many examples, perhaps none.

    Each array has the same number of rows for every example, along its first axis.
    """
    start, stop = (examples * number // ranks.size() for number in (ranks.rank(), ranks.rank() + 1))
    return tuple(array[start * len(array) // examples : stop * len(array) // examples] for array in batch)


def averaged(loss: mx.array, gradients: object) -> tuple[mx.array, Any]:
    """The means of the losses and the gradients over the ranks, the same bits on each of them."""
    if ranks.size() == 1:
        return loss, gradients
    mx.eval(loss, gradients)  # collectives must run in the same order on all ranks
    gradients = nn.average_gradients(gradients, ranks.group())
    return ranks.all_sum(loss) / ranks.size(), gradients


def broadcast_tree(tree: object) -> Any:
    """A tree with the arrays of rank 0; all ranks have the same paths, shapes and types."""
    if ranks.size() == 1:
        return tree
    arrays = []
    for path, array in sorted(tree_flatten(tree)):
        arrays.append((path, ranks.broadcast(array)))
        mx.eval(arrays[-1][1])
    return tree_unflatten(arrays)


def weight_sums(model: nn.Module) -> list[int]:
    """A number for each trainable parameter, the sum of its bits in pieces of 16: another where a bit has changed."""
    arrays = [array.reshape(-1) for _, array in tree_flatten(model.trainable_parameters())]
    sums = mx.stack([array.view(mx.uint16).astype(mx.uint32).sum() for array in arrays])
    return sums.tolist()  # type: ignore[no-any-return]


def check_same_weights(model: nn.Module, step: int) -> None:
    """ZooError where a rank's trainable parameters are not, bit for bit, those of rank 0."""
    if ranks.size() == 1:
        return
    first, *others = ranks.gathered(weight_sums(model))
    for number, other in enumerate(others, 1):
        if other != first:
            raise ZooError(f"rank {number} has other weights than rank 0 at step {step}: resume the run")


def mean_loss(
    model: nn.Module,
    loss: Callable[..., mx.array],
    weight: Callable[[tuple[mx.array, ...]], float],
    batches: Iterable[tuple[mx.array, ...]],
    stop: Callable[[], bool],
) -> float | None:
    """The mean loss of batches, each counted by its weight; every rank computes some of them.

    None where the weights are 0, or `stop` says so on a rank before the loss is known.
    """
    total = count = 0.0
    stopped = False
    for batch in islice(batches, ranks.rank(), None, ranks.size()):
        if stopped := stop():
            break
        counted = weight(batch)
        total += loss(model, *batch).item() * counted
        count += counted
    totals, counts, stops = zip(*ranks.gathered([total, count, stopped]), strict=True)
    return sum(totals) / sum(counts) if sum(counts) and not any(stops) else None
