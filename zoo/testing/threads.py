"""Ranks that are threads of this process, for checks: their collectives add and join what the threads give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any, TypeVar

import mlx.core as mx

from zoo.runtime import ranks

Result = TypeVar("Result")
POLL = 0.05  # seconds between two looks whether a rank has failed
FINISHED = "finished"


def run_ranks(count: int, function: Callable[[], Result]) -> list[Result]:
    """Call `function` on `count` ranks, which are threads, and return its values. The error of the first that fails is raised.

    AssertionError where the ranks do not call the same collectives in the same order.
    """
    meeting = _Meeting(count)
    with ThreadPoolExecutor(count) as pool:
        runs = [pool.submit(_ThreadRank(rank, meeting).run, function) for rank in range(count)]
    errors = [error for run in runs if (error := run.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [run.result() for run in runs]


class _Meeting:
    """Where the ranks exchange arrays."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        # The inputs of a collective, by rank. Successive collectives use the two lists in turn, so a rank that is one ahead does
        # not overwrite what others still read.
        self.given: list[list[tuple[str, Any]]] = [[("", None)] * count for _ in range(2)]
        self.sent: dict[tuple[int, int], Queue[mx.array]] = {
            (source, target): Queue() for source in range(count) for target in range(count)
        }


class _ThreadRank:
    """One of the ranks, with the methods of MLX's group and of `mx.distributed`.

    Like MLX's, the collectives take arrays of one size in any shapes, and return the shape that this rank gave.
    """

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self._rank, self._meeting, self._collectives = rank, meeting, 0

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._meeting.barrier.parties

    def run(self, function: Callable[[], Result]) -> Result:
        """Run `function` as this rank. If it fails, the other ranks stop waiting for it."""
        try:
            with ranks.stand_in(self):
                result = function()
                self._exchange(FINISHED, None)
            return result
        except BaseException:
            self._meeting.barrier.abort()
            raise

    def _exchange(self, name: str, x: mx.array | None) -> list[Any]:
        """What each rank gives to the collective of that name."""
        if x is not None:
            mx.eval(x)  # another thread cannot compute it
        given = self._meeting.given[self._collectives % 2]
        self._collectives += 1
        given[self._rank] = (name, x)
        self._meeting.barrier.wait()
        names, arrays = zip(*given, strict=True)
        assert len(set(names)) == 1, f"the ranks do not do the same: {', '.join(names)}"
        return list(arrays)

    def all_sum(self, x: mx.array, *, group: Any) -> mx.array:
        first, *others = (given.reshape(x.shape) for given in self._exchange("all_sum", x))
        return sum(others, start=first)

    def all_gather(self, x: mx.array, *, group: Any) -> mx.array:
        return mx.concatenate([given.reshape(x.shape) for given in self._exchange("all_gather", x)])

    def send(self, x: mx.array, target: int, *, group: Any) -> mx.array:
        mx.eval(x)
        self._meeting.sent[self._rank, target].put(x)
        return x

    def recv_like(self, x: mx.array, source: int, *, group: Any) -> mx.array:
        while not self._meeting.barrier.broken:
            try:
                return self._meeting.sent[source, self._rank].get(timeout=POLL).reshape(x.shape)
            except Empty:
                continue
        raise threading.BrokenBarrierError
