"""Documents to batches of token ids. Axes: B rows, T tokens a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import mlx.core as mx

IGNORED = -1  # a target that no loss is taken of


def rows(documents: Iterable[list[int]], length: int, end: int) -> Iterator[list[int]]:
    """Rows of `length` + 1 ids: whole documents one after the other, each closed by `end`.

    A row starts where a document does, as a prompt will, and the document that overflows it is cut.
    """
    row: list[int] = []
    for ids in documents:
        row += [*ids, end]
        if len(row) > length:
            yield row[: length + 1]
            row = []


def batches(texts: Iterable[str], encode: Callable[[str], list[int]], *, batch: int, length: int, end: int):
    """Teacher-forced batches: inputs (B, T), and targets (B, T), the inputs shifted by one token."""
    waiting: list[list[int]] = []
    for row in rows((encode(text) for text in texts), length, end):
        waiting.append(row)
        if len(waiting) == batch:
            ids = mx.array(waiting)  # (B, T + 1)
            yield ids[:, :-1], ids[:, 1:]
            waiting = []


def padded(texts: Iterable[str], encode: Callable[[str], list[int]], *, batch: int, end: int):
    """One document a row, padded on the right by targets that are ignored: for measuring, not for training."""
    waiting: list[list[int]] = []

    def give():
        width = max(map(len, waiting))
        inputs = mx.array([row[:-1] + [end] * (width - len(row)) for row in waiting])
        targets = mx.array([row[1:] + [IGNORED] * (width - len(row)) for row in waiting])
        return inputs, targets

    for text in texts:
        waiting.append([*encode(text), end])
        if len(waiting) == batch:
            yield give()
            waiting = []
    if waiting:
        yield give()
