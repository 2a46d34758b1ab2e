"""The limits of a machine, and what a token needs of them: their quotient is the highest rate there can be.

Run as a script it measures the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.describe.facts.counts import decode_flops, prefill_flops
from zoo.describe.facts.memory import cache_sizes
from zoo.inspect.timing import answer, evaluation_seconds
from zoo.recipe import Model
from zoo_bench.engine import Lengths

NEEDS = "needs"  # of an engine's run: by metric, what a token takes of the limit that bounds it
SIDES = (512, 1024, 2048, 4096, 8192)  # of the square matrices that are multiplied
LONG = 0.05  # seconds of a product beyond which a larger one is not tried
WIDTH = 2048  # of the matrix that is read
LARGE = 2**26  # numbers that are read: more than a processor's caches hold
RUNS = 5  # the best counts: a limit is what is possible


def limits() -> dict[str, float]:
    """Bytes read from memory a second ("reading"), and operations a second in products of matrices ("products").

    Both are the best of several ways and runs, in the dtype that the zoo computes in.
    """
    dtype = runtime.compute_dtype() or mx.bfloat16
    matrix = _matrix(LARGE // WIDTH, WIDTH, dtype)
    large = matrix.reshape(-1)
    row, column = mx.ones((1, WIDTH), dtype), mx.ones((1, matrix.shape[0]), dtype)
    mx.eval(matrix, row, column)
    reads: list[Callable[[], Any]] = [lambda: large.sum(), lambda: row @ matrix.T, lambda: column @ matrix]
    seconds = min(min(evaluation_seconds(read, RUNS)) for read in reads)
    return {"reading": large.nbytes / seconds, "products": max(_products(dtype))}


def _products(dtype: mx.Dtype) -> Iterator[float]:
    """Operations a second in products of larger and larger matrices, as long as they take little time."""
    for side in SIDES:
        matrix = _matrix(side, side, dtype)
        mx.eval(matrix)
        seconds = min(evaluation_seconds(partial(mx.matmul, matrix, matrix), RUNS))
        yield 2 * side**3 / seconds
        if seconds > LONG:
            return


def _matrix(height: int, width: int, dtype: mx.Dtype) -> mx.array:
    """Products of random numbers: to draw each number of it would take seconds."""
    return (mx.random.normal((height, 1)) * mx.random.normal((width,))).astype(dtype)


def needs(recipe: Model, weight_bytes: float, number_bytes: int, lengths: Lengths) -> dict[str, float]:
    """By metric, the bytes or operations that one token takes; `weight_bytes` is of one weight, on average.

    Every matrix is read once a step, whatever the rows; of a mixture those of the experts that a token chooses. What is
    cached is read once a token, in `number_bytes` a number.
    """
    written, read = decode_flops(recipe, 1), prefill_flops(recipe, lengths.prompt)
    if written is None or read is None:
        return {}
    weights = written / 2 * weight_bytes  # two operations a weight

    def cached(tokens: int) -> float:
        """The bytes of the caches after a number of tokens, two for each number of 16 bits."""
        return sum(kept.bytes(tokens) for kept in cache_sizes(recipe)) * number_bytes / 2

    return {
        "prefill_rate": read,
        "decode_rate": weights + cached(lengths.prompt),
        "batch_rate": weights / lengths.rows,
        "context_rate": weights + cached(lengths.context),
    }


if __name__ == "__main__":
    answer(limits)
