"""Documents to batches of token ids. Axes: B rows, T tokens a row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import mlx.core as mx

IGNORED = -1  # a target without a loss
SORTED = 16  # batches whose documents are sorted by length together
POOL = 4096  # rows of running text that are mixed at a time


def rows(documents: Iterable[list[int]], length: int, end: int, packed: bool = False) -> Iterator[list[int]]:
    """Rows of `length` + 1 ids: whole documents one after the other, each closed by `end`.

    A row starts where a document does, as a prompt will, and the document that overflows it is cut. `packed` cuts
    nothing off: the next row goes on with the last id of the one before, so that each id is a target once.
    """
    row: list[int] = []
    for ids in documents:
        row += [*ids, end]
        if packed:
            whole = (len(row) - 1) // length * length
            yield from (row[start : start + length + 1] for start in range(0, whole, length))
            row = row[whole:]
        elif len(row) > length:
            yield row[: length + 1]
            row = []


def shuffled(items: Iterable[Any], order: random.Random, pool: int) -> Iterator[Any]:
    """The items in random order, shuffled within pools of `pool`."""
    remaining = iter(items)
    while waiting := list(islice(remaining, pool)):
        order.shuffle(waiting)
        yield from waiting


def batches(
    texts: Iterable[str],
    encode: Callable[[str], list[int]],
    *,
    batch: int,
    length: int,
    end: int,
    shuffle: random.Random | None = None,
):
    """Teacher-forced batches: inputs (B, T), and targets (B, T), the inputs shifted by one token.

    With `shuffle`, rows are packed and come in a mixed order: neighbours from one text make a batch less varied.
    """
    found: Iterable[list[int]] = rows(map(encode, texts), length, end, packed=shuffle is not None)
    remaining = iter(found if shuffle is None else shuffled(found, shuffle, POOL))
    while waiting := list(islice(remaining, batch)):
        ids = mx.array(waiting)  # (B, T + 1)
        yield ids[:, :-1], ids[:, 1:]


def padded(texts: Iterable[str], encode: Callable[[str], list[int]], *, batch: int, end: int):
    """One document a row, padded on the right by targets that are ignored: for measuring, not for training.

    Documents of like length share a batch, so that little of it is padding.
    """
    remaining = ([*encode(text), end] for text in texts)
    while pool := sorted(islice(remaining, SORTED * batch), key=len):
        for start in range(0, len(pool), batch):
            some = pool[start : start + batch]
            width = len(some[-1])
            inputs = mx.array([row[:-1] + [end] * (width - len(row)) for row in some])  # (B, T)
            yield inputs, mx.array([row[1:] + [IGNORED] * (width - len(row)) for row in some])
