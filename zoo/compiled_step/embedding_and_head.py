"""Where a step begins and ends: tokens to vectors, vectors to logits. Axes: B batch, D width, V vocabulary, P positions."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.embedding import Embedding
from zoo.blocks.head import Head
from zoo.blocks.position import LearnedPositions, SinusoidalPositions
from zoo.blocks.quantized import QuantizedEmbedding
from zoo.compiled_step.compiler import Function, StepCompiler, compiles, has_methods_of, product

ROWS = 256  # of a table of positions, at first


@compiles(Embedding, "__call__", "vectors", "look_up", "owner")
def embedding(compiler: StepCompiler, block: Embedding) -> Function | None:
    """(B, 1), the position of each row -> (B, D)."""
    table = _table(block)
    if table is None:
        return None
    scale = block.scale
    norm = compiler.compile(block.norm) if "norm" in block else None
    places = _places(compiler, block.positions) if "positions" in block else None
    look_up = _rows(compiler, table)

    def step(tokens: mx.array, offset: Any) -> mx.array:
        x = look_up(mx.squeeze(tokens, 1))
        if scale != 1.0:
            x = x * scale
        if places is not None:
            x = x + places(offset, x.dtype)
        return x if norm is None else norm(x)

    return step


def _table(block: Any) -> nn.Module | None:
    """The table that an embedding looks its tokens up in; None where a subclass has a way of its own."""
    if not has_methods_of(block, Embedding, "look_up", "as_linear", "owner"):
        return None
    owner = block.owner
    return owner.tokens if has_methods_of(owner, Embedding, "look_up", "as_linear") else None


def _rows(compiler: StepCompiler, table: nn.Module) -> Function:
    """(B,) -> (B, D)."""
    if type(table) is not nn.Embedding:
        return table
    weight = compiler.take(table, "weight")
    return lambda tokens: weight[tokens]


def _places(compiler: StepCompiler, positions: nn.Module) -> Function:
    """The position of each row, a number or (B,), and the dtype of the tokens' vectors -> (D,) or (B, D)."""
    if has_methods_of(positions, LearnedPositions, "__call__"):
        return lambda offset, dtype: mx.squeeze(positions(1, offset), -2)
    waves = _Waves(positions) if has_methods_of(positions, SinusoidalPositions, "__call__") else None

    def step(offset: Any, dtype: mx.Dtype) -> mx.array:
        if waves is not None and isinstance(offset, int):
            return waves(offset).astype(dtype)
        found = mx.squeeze(positions(1, offset), -2)
        return found if "weight" in positions else found.astype(dtype)

    return step


class _Waves:
    """Sines and cosines of positions, computed once: a table (P, D) that grows with the text."""

    def __init__(self, positions: nn.Module) -> None:
        self._positions, self._table, self._rows = positions, mx.zeros((0,)), 0

    def __call__(self, position: int) -> mx.array:  # -> (D,)
        if position >= self._rows:
            self._rows = max(ROWS, 2 * position)
            self._table = self._positions(self._rows)
            mx.eval(self._table)
        return self._table[position]


@compiles(Head, "__call__")
def head(compiler: StepCompiler, block: Head) -> Function:
    """(B, D) -> (B, V)."""
    multiply, scale = _logits(compiler, block), block.spec.scale
    return multiply if scale == 1.0 else lambda x: multiply(x * scale)


def _logits(compiler: StepCompiler, block: Head) -> Function:
    """(B, D) -> (B, V), by a matrix of its own or the embedding's table."""
    if block.embedding is None:
        return compiler.compile(block.output)
    table = _table(block.embedding)
    bias = compiler.take(block, "bias") if "bias" in block else None
    if type(table) is nn.Embedding or (type(table) is QuantizedEmbedding and table.kept() is not None):
        return product(table, compiler.take_all(table) | ({} if bias is None else {"bias": bias}))
    multiply = block.embedding.as_linear
    return multiply if bias is None else lambda x: multiply(x) + bias
