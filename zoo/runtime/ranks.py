"""The ranks of a run: the processes that `mlx.launch` starts, and the collectives between them.

A rank is one process; `size()` of them run the same command. Each collective is called by all ranks, in the same order.
A command that was started alone is rank 0 of 1, and its collectives return what they are given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from random import Random, SystemRandom
from typing import Any

import mlx.core as mx

from zoo.errors import RankError, in_words
from zoo.machine import launched, mpi_size
from zoo.version import __version__


@cache
def _joined() -> tuple[mx.distributed.Group | None, Random]:
    """The group of all ranks, and a generator of random numbers that is in the same state on all of them."""
    if not launched():
        return None, SystemRandom()
    from zoo import rank_watch

    watch = rank_watch.watch()
    if watch is None:
        ranks = _connected(alone=mpi_size() < 2)
    else:
        with watch.connecting():
            ranks = _connected()
    versions = {"zoo": __version__, "mlx": version("mlx")}
    for name, number in _shared(versions, ranks).items():
        if versions[name] != number:
            raise RankError(
                f"the {name} version is {versions[name]}, rank 0 has {number}; all ranks must have the same"
            )
    return ranks, Random(_shared(SystemRandom().getrandbits(128), ranks))


def _connected(alone: bool = False) -> mx.distributed.Group:
    """The group that MLX connects. RankError if it cannot, unless this process may be `alone`."""
    try:
        return mx.distributed.init(strict=not alone)
    except RuntimeError as error:
        found = "MLX_RANK" in os.environ or "MLX_MPI_LIBNAME" in os.environ
        hint = "" if found else "; MLX_MPI_LIBNAME names the library of MPI, and `mlx.launch` sets it"
        raise RankError(f"MLX cannot connect the ranks ({in_words(error)}){hint}") from error


_stand_in: ContextVar[tuple[Any, Random] | None] = ContextVar("ranks", default=None)


@contextmanager
def stand_in(ranks: Any) -> Iterator[None]:
    """Let `ranks` be the group of this context until the end of the block. It must also have the collectives of `mx.distributed`."""
    token = _stand_in.set((ranks, Random(0)))
    try:
        yield
    finally:
        _stand_in.reset(token)


def _known() -> tuple[Any, Random]:
    """The group of this context, and the generator of random numbers that is in the same state on all its ranks."""
    return _stand_in.get() or _joined()


def _library() -> Any:
    """The module, or the stand-in, that has the collectives."""
    standing = _stand_in.get()
    return mx.distributed if standing is None else standing[0]


def group() -> mx.distributed.Group | None:
    """The group of all ranks, connected at the first call and watched from then on; None for a process started alone.

    RankError when a rank does not come or has another version.
    """
    return _known()[0]


def random_seed() -> int:
    """A random seed of 63 bits. Ranks that draw equally often get the same seeds."""
    return _known()[1].getrandbits(63)


def rank() -> int:
    """The number of this process among the ranks, from 0."""
    ranks = group()
    return 0 if ranks is None else int(ranks.rank())


def size() -> int:
    """The number of ranks."""
    ranks = group()
    return 1 if ranks is None else int(ranks.size())


def all_sum(x: mx.array) -> mx.array:
    """The sum of the arrays of all ranks, on each of them: the same bits everywhere."""
    ranks = group()
    return x if ranks is None or ranks.size() == 1 else _library().all_sum(x, group=ranks)


def all_gather(x: mx.array) -> mx.array:  # (…, N) -> (…, ranks·N)
    """The arrays of all ranks, of one shape, side by side on the last axis, in the order of the ranks."""
    if size() == 1:
        return x
    parts = _library().all_gather(mx.expand_dims(x, 0), group=group())  # (ranks, …, N)
    return mx.moveaxis(parts, 0, -2).reshape(*x.shape[:-1], -1)


def broadcast(x: mx.array, source: int = 0) -> mx.array:
    """The array of rank `source`, on every rank; all give one of its shape and dtype."""
    if size() == 1:
        return x
    return all_sum(x if rank() == source else mx.depends(mx.zeros_like(x), x))


def agreed(condition: bool) -> bool:
    """Whether a condition holds on rank 0, on every rank."""
    return condition if size() == 1 else bool(all_sum(mx.array(condition and rank() == 0, mx.int32)).item())


def send(x: mx.array, target: int) -> mx.array:
    """Send an array to a neighbouring rank; returns it, and is done when that is evaluated."""
    return _library().send(x, target, group=group())


def receive(like: mx.array, source: int) -> mx.array:
    """Receive an array from a neighbouring rank. It has the shape and the dtype of `like`."""
    return _library().recv_like(like, source, group=group())


def shared(value: Any) -> Any:
    """The value of rank 0, on every rank: anything that JSON can write."""
    ranks = group()
    return value if ranks is None else _shared(value, ranks)


def _shared(value: Any, ranks: mx.distributed.Group) -> Any:
    if ranks.size() == 1:
        return value
    text = json.dumps(value).encode() if ranks.rank() == 0 else b""
    length = int(_library().all_sum(mx.array(len(text), mx.int32), group=ranks).item())
    given = mx.array(list(text.ljust(length, b"\0")), mx.uint8) if length else mx.zeros((0,), mx.uint8)
    return json.loads(bytes(_library().all_sum(given, group=ranks).tolist()))


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, on each of them, in the order of the ranks: anything that JSON can write."""
    if size() == 1:
        return [value]
    text = json.dumps(value).encode()
    lengths = all_gather(mx.array([len(text)], mx.int32)).tolist()
    texts = bytes(all_gather(mx.array(memoryview(text.ljust(max(lengths))), mx.uint8)).tolist())
    return [json.loads(texts[start : start + max(lengths)]) for start in range(0, len(texts), max(lengths))]


def barrier() -> None:
    """Wait until all ranks are here."""
    gathered(None)


def check_same(values: Mapping[str, Any]) -> None:
    """RankError, with the rank, the name of the value and both values, where a rank has another value than rank 0."""
    first, *others = gathered(values)
    for number, other in enumerate(others, 1):
        if different := next((name for name in first if other.get(name) != first[name]), None):
            theirs, ours = other.get(different), first[different]
            raise RankError(
                f"rank {number} has {different} {theirs!s:.80}, rank 0 has {ours!s:.80}; all ranks must have the same"
            )
