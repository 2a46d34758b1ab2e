"""Tensors of a GGUF file that stay there until a part of them is read."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx

from zoo.checkpoint.gguf.header import TensorInfo
from zoo.checkpoint.gguf.tensors import (
    Requantized,
    block_numbers,
    read_requantized,
    stored_numbers,
    unread,
)
from zoo.checkpoint.stored_tensor import StoredTensor


@dataclass(frozen=True)
class StoredBlocks(StoredTensor):
    """A tensor of blocks, of the type of `entry`, read as `read_requantized` reads it, whole blocks at a time."""

    entry: TensorInfo = field(kw_only=True)
    repack: int | None = field(kw_only=True)
    losses: Requantized = field(kw_only=True)

    @property
    def nbytes(self) -> int:
        """How many bytes the tensor has once it is read."""
        shape = (*self.rows.shape, self.columns[1] - self.columns[0])
        return int(unread(replace(self.entry, shape=shape), self.dtype, self.repack).nbytes)

    def _read(self, pool: Executor) -> Any:
        block = block_numbers(self.entry)
        (first, last), before = self.columns, self.columns[0] % block
        part = replace(self, columns=(first - before, -(-last // block) * block))
        found = read_requantized(self.entry, self.dtype, self.repack, self.losses, pool, part)
        exact = part.columns == self.columns
        return found if exact else found[..., before : before + last - first]


def stored_blocks(
    entry: TensorInfo, dtype: mx.Dtype, repack: int | None, losses: Requantized
) -> StoredBlocks:
    """A whole tensor of two axes or more."""
    part = stored_numbers(entry)
    how: dict[str, Any] = dict(entry=entry, repack=repack, losses=losses)
    return StoredBlocks(part.spans, part.rows, part.columns, dtype, dtype, **how)
