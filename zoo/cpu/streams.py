"""Products with packed matrices on all cores: MLX's CPU backend computes each operation on one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import mlx.core as mx

from zoo import cpu
from zoo.machine import processors

MOST_STREAMS = 4  # more are limited by memory bandwidth
LEAST_DIVIDED = 2**15  # words of packed numbers from which on a product is divided among cores


@cache
def side_streams() -> tuple[mx.Stream, ...]:
    """The streams for parts of one product, one per core of this process.

    They are made once, since each has a thread that never ends.
    """
    # A version of MLX whose streams belong to one thread has streams that each thread makes for itself.
    new = getattr(mx, "new_thread_local_stream", mx.new_stream)
    return tuple(new(mx.cpu) for _ in range(min(processors(), MOST_STREAMS)))


def in_parts(
    function: Callable[..., mx.array], axis: int, weight: mx.array, *arrays: mx.array | None
) -> Callable[..., mx.array]:
    """A function of packed numbers whose outputs, the first axis of the arrays, are divided among the streams.

    `function(weight, *arrays, *inputs, stream=…)` computes one part; the parts are joined along `axis`.
    """
    streams = side_streams() if cpu.uses("streams") else ()
    if len(streams) < 2 or weight.size < LEAST_DIVIDED:
        return lambda *inputs: function(weight, *arrays, *inputs)
    step = -(-weight.shape[0] // len(streams))
    ends = list(range(step, weight.shape[0], step))
    split: list[Any] = [
        [None] * (len(ends) + 1) if array is None else mx.split(array, ends) for array in (weight, *arrays)
    ]
    parts = list(zip(*split, streams[: len(ends) + 1], strict=True))

    def compute(*inputs: mx.array) -> mx.array:
        return mx.concatenate([function(*part, *inputs, stream=stream) for *part, stream in parts], axis=axis)

    return compute
