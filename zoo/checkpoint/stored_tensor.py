"""Tensors that stay in their files while weight rules and a rank's cuts rearrange them: only what is left is read.

A `StoredTensor` is row numbers and a range of columns. Rules slice, reshape and swap the row numbers, as numpy arrays; reading
then takes the bytes of those rows and columns alone.

Axes: … stacked matrices, O rows, I columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from zoo import runtime
from zoo.errors import CheckpointError
from zoo.recipe.division import Range

GAP = 512  # bytes between two ranges that are read with them: another call would take longer
PIECE = 2**20  # bytes that are read at once

SPAN_BITS = 32  # a row number is the index of its span, times 2^32, plus the number of the row in it


@dataclass(frozen=True)
class Span:
    """The bytes of tensor `name` in a file: they begin at `offset`, and each row takes `row_bytes`."""

    path: Path
    name: str
    offset: int
    row_bytes: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor (…, O, I), or a part of one, that stays in its file until `read` is called. It has at least two axes.

    `rows` (…, O) are numbers of rows in the `spans`, `columns` the first of each row's numbers and the one after the last.
    The file holds numbers of type `stored`, which are read as `dtype`. `swapped` tensors are shown as (…, I, O).
    It has the operations that weight rules use. Those that divide or reorder the columns read the whole tensor.
    """

    spans: tuple[Span, ...]
    rows: np.ndarray
    columns: Range
    stored: mx.Dtype
    dtype: mx.Dtype
    swapped: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        *outer, rows = self.rows.shape
        columns = self.columns[1] - self.columns[0]
        return (*outer, columns, rows) if self.swapped else (*outer, rows, columns)

    @property
    def ndim(self) -> int:
        return self.rows.ndim + 1

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.rows.size * (self.columns[1] - self.columns[0])

    @property
    def nbytes(self) -> int:
        """The bytes of the numbers in the file's type."""
        return self.size * self.stored.size

    def astype(self, dtype: mx.Dtype) -> StoredTensor:
        """A copy that is cast to `dtype` when it is read."""
        return replace(self, dtype=dtype)

    @property
    def T(self) -> Any:
        return self.swapaxes(-1, -2) if self.ndim == 2 else self.read().T

    def swapaxes(self, first: int, second: int) -> Any:
        """Rows and columns swapped, which only changes how the tensor is shown; or any two axes of rows."""
        axes = {first % self.ndim, second % self.ndim}
        if axes == {self.ndim - 2, self.ndim - 1}:
            return replace(self, swapped=not self.swapped)
        if self.swapped or self.ndim - 1 in axes:
            return self.read().swapaxes(first, second)
        return replace(self, rows=self.rows.swapaxes(*axes))

    def reshape(self, *shape: int) -> Any:
        """Axes of rows divided or joined; columns stay whole."""
        if self.swapped or len(shape) < 2 or shape[-1] != self.shape[-1]:
            return self.read().reshape(*shape)
        return replace(self, rows=self.rows.reshape(shape[:-1]))

    def __getitem__(self, index: Any) -> Any:
        """Some of the rows, by any index, and a range of the columns."""
        steps = list(index) if isinstance(index, tuple) else [index]
        missing = self.ndim - sum(step is not None and step is not Ellipsis for step in steps)
        place = steps.index(Ellipsis) if Ellipsis in steps else len(steps)
        steps[place : place + 1] = [slice(None)] * missing
        columns = steps.pop(-2 if self.swapped else -1)
        outermost = steps[-1] if self.swapped else slice(None)
        if (
            not isinstance(columns, slice)
            or columns.step not in (None, 1)
            or not isinstance(outermost, slice)
        ):
            return self.read()[index]
        rows, some = self.rows[tuple(steps)], range(*self.columns)[columns]
        if not rows.ndim or not rows.size or not some:
            return self.read()[index]
        return replace(self, rows=rows, columns=(some.start, some.stop))

    def joined(self, tensors: Sequence[Any], axis: int) -> Any:
        """`mx.concatenate` of these tensors, of which this is one, unread where they have the same columns."""
        axis %= self.ndim
        column_axis = self.ndim - 2 if self.swapped else self.ndim - 1
        if axis == column_axis or any(_form(tensor) != _form(self) for tensor in tensors):
            return mx.concatenate([t.read() if isinstance(t, StoredTensor) else t for t in tensors], axis)
        spans: list[Span] = []
        rows = []
        for tensor in tensors:
            rows.append(tensor.rows + (len(spans) << SPAN_BITS))
            spans += tensor.spans
        return replace(self, spans=tuple(spans), rows=np.concatenate(rows, min(axis, self.rows.ndim - 1)))

    def read(self, pool: Executor | None = None) -> Any:
        """The array. `pool` reads its pieces. CheckpointError for a file that has become shorter, or cannot be read."""
        with reading_pool(pool) as pool:
            found = self._read(pool)
        return found.swapaxes(-1, -2) if self.swapped else found

    def _read(self, pool: Executor) -> Any:
        """The array (…, O, I)."""
        first, last = (column * self.stored.size for column in self.columns)
        array, room = empty((*self.rows.shape, last - first), mx.uint8)

        def store(row: int, data: np.ndarray) -> None:
            room[row : row + len(data)] = data

        width = min(last - first + GAP, max(span.row_bytes for span in self.spans))
        read_rows(self.spans, self.rows, (first, last), max(1, PIECE // width), store, pool)
        return array.view(self.stored).astype(self.dtype)


def _form(tensor: Any) -> Any:
    """What two tensors must have in common to be joined unread: all but the rows."""
    if not isinstance(tensor, StoredTensor):
        return None
    others = (getattr(tensor, field.name) for field in fields(tensor) if field.name not in ("spans", "rows"))
    return type(tensor), tensor.ndim, *others


def whole(span: Span, shape: Sequence[int], dtype: mx.Dtype) -> StoredTensor:
    """A whole tensor of a file, of two axes or more."""
    *outer, columns = shape
    rows = np.arange(int(np.prod(outer, dtype=np.int64))).reshape(outer)
    return StoredTensor((span,), rows, (0, columns), dtype, dtype)


def empty(shape: tuple[int, ...], dtype: mx.Dtype) -> tuple[mx.array, np.ndarray]:
    """An array to fill, and numpy's view of its rows, (O, …), through which that is done."""
    array = mx.zeros(shape, dtype, stream=mx.cpu)
    mx.eval(array)
    return array, np.array(array, copy=False).reshape(-1, shape[-1])


@contextmanager
def reading_pool(pool: Executor | None = None) -> Iterator[Executor]:
    """The threads that read pieces of tensors in parallel: those of `pool`, or new ones."""
    if pool is not None:
        yield pool
        return
    with ThreadPoolExecutor(runtime.threads()) as pool:
        yield pool


def read_rows(
    spans: Sequence[Span],
    rows: np.ndarray,
    columns: Range,
    step: int,
    store: Callable[[int, np.ndarray], None],
    pool: Executor,
) -> None:
    """Read `columns` (bytes) of rows by number, and give them to `store` in pieces of `step` rows.

    `store` is called, in any thread, with the place of a piece's first row among `rows` and its bytes (rows, columns).
    """
    rows = rows.reshape(-1)
    owners = rows >> SPAN_BITS
    for begin, end in pairwise((0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows))):
        if begin == end:
            continue
        span, numbers = spans[owners[begin]], rows[begin:end] & ((1 << SPAN_BITS) - 1)
        with _opened(span.path) as file:
            starts = range(0, len(numbers), step)
            pieces = [numbers[start : start + step] for start in starts]
            reading = partial(_bytes, file, span, columns)

            def read_piece(start: int, piece: np.ndarray, reading: Any = reading, begin: int = begin) -> None:
                store(begin + start, reading(piece))

            list((pool.map if len(pieces) > 1 else map)(read_piece, starts, pieces))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file's descriptor; CheckpointError where it cannot be opened or read."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            yield file
        finally:
            os.close(file)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error


def _bytes(file: int, span: Span, columns: Range, numbers: np.ndarray) -> np.ndarray:  # (rows, columns)
    """The bytes of rows by number, ranges that lie close to each other read as one."""
    width = columns[1] - columns[0]
    order = np.argsort(numbers, kind="stable")
    starts = span.offset + numbers[order] * span.row_bytes + columns[0]
    steps = np.diff(starts)
    data = np.empty((len(numbers), width), np.uint8)
    for first, last in pairwise((0, *(np.flatnonzero(steps > width + GAP) + 1).tolist(), len(numbers))):
        begin, size = int(starts[first]), int(starts[last - 1] - starts[first]) + width
        found = os.pread(file, size, begin)
        if len(found) != size:
            raise CheckpointError(f"{span.path}: ends within tensor {span.name}")
        block = np.frombuffer(found, np.uint8)
        if last - first == 1:
            data[order[first]] = block
        else:
            step = int(steps[first])
            if (steps[first : last - 1] == step).all():
                some = np.lib.stride_tricks.as_strided(block, (last - first, width), (step, 1))
            else:
                some = block[(starts[first:last] - begin)[:, None] + np.arange(width)]
            data[order[first:last]] = some
    return data
