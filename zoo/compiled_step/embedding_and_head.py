"""The embedding and the head of a step. Axes: B batch, D width, V vocabulary, P positions."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.embedding import Embedding
from zoo.blocks.head import Head
from zoo.blocks.position import SinusoidalPositions
from zoo.blocks.quantized import QuantizedEmbedding
from zoo.compiled_step.compiler import Function, StepCompiler, compiles, has_methods_of, product

ROWS = 256  # of a table of positions, at first


@compiles(Embedding, "__call__")
def embedding(compiler: StepCompiler, block: Embedding) -> Function | None:
    """(B, 1), the position of each row -> (B, D): with sinusoids that are computed once."""
    if "positions" not in block or not has_methods_of(block.positions, SinusoidalPositions, "__call__"):
        return None
    waves, positions = _Waves(block.positions), block.positions
    norm = compiler.compile(block.norm) if "norm" in block else None

    def step(tokens: mx.array, offset: int | mx.array) -> mx.array:
        x = mx.squeeze(block.vectors(tokens), 1)
        found = waves(offset) if isinstance(offset, int) else mx.squeeze(positions(1, offset), -2)
        x = x + found.astype(x.dtype)
        return x if norm is None else norm(x)

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


def _table(block: nn.Module) -> nn.Module | None:
    """The table that a tied head multiplies by; None where a subclass of `Embedding` has a way of its own."""
    if not has_methods_of(block, Embedding, "as_linear", "owner"):
        return None
    owner = block.owner
    return owner.tokens if has_methods_of(owner, Embedding, "as_linear") else None
