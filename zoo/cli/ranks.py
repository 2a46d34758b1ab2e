"""A command on several ranks: all run it alike, rank 0 reads and prints for all."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from zoo.rank_watch.launcher import launched, launched_rank

Value = TypeVar("Value")
Step = TypeVar("Step")


def join_ranks(debug: bool = False) -> None:
    """Meet the other ranks. Ranks other than 0 then print nothing, read nothing, and leave Ctrl-C to rank 0.

    What libraries print to the error stream by themselves, such as each attempt on a connection that was lost, is left out
    unless `debug`.
    """
    from zoo import rank_watch

    nothing, silent = os.open(os.devnull, os.O_RDWR), launched_rank() > 0
    if not debug:
        sys.stderr = sys.__stderr__ = os.fdopen(os.dup(2), "w", buffering=1)  # type: ignore[misc]
        os.dup2(nothing, 2)
    if silent:
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        if not debug:
            sys.stderr = os.fdopen(nothing, "w")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank_watch.watch()


def on_rank_0(read: Callable[[], Value], raises: tuple[type[BaseException], ...] = ()) -> Value:
    """What a function gives on rank 0, or which of some errors it `raises`, on every rank; JSON must be able to write it.

    The other ranks wait for it without using the processor.
    """
    if not launched():
        return read()
    from zoo import rank_watch
    from zoo.runtime import ranks

    found: list[Any] = []
    first, watch = ranks.rank() == 0, rank_watch.watch()
    if first:
        try:
            found = [read()]
        except raises as error:
            found = [next(index for index, kind in enumerate(raises) if isinstance(error, kind)), str(error)]
    if watch is not None:
        watch.release() if first else watch.wait()
    value, *message = ranks.shared(found)
    if message:
        raise raises[value](*message)
    return value  # type: ignore[no-any-return]


def until_interrupted(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps of a generation. Ctrl-C raises KeyboardInterrupt; on several ranks it does so on all of them, after a step."""
    if not launched():
        yield from steps
        return
    from zoo.cli.signals import Interrupts
    from zoo.runtime import ranks

    with Interrupts(lambda line: None) as interrupts:
        interrupts.wait_for_step()
        for step in steps:
            yield step
            if ranks.agreed(interrupts.asked()):
                raise KeyboardInterrupt
