"""A command on several ranks: all of them run it, and rank 0 alone reads input and prints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from zoo.cli.signals import Interrupts, end, listen
from zoo.machine import launched, launched_rank

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
    if not silent and (listener := listen()) is not None:
        listener.work = RankInterrupts()


def on_rank_0(read: Callable[[], Value], raises: tuple[type[BaseException], ...] = ()) -> Value:
    """Call a function on rank 0, and return its value on every rank. JSON must be able to write the value.

    An error of one of the kinds in `raises` is raised on every rank, too. The other ranks wait without using the processor.
    """
    if not launched():
        return read()
    from zoo import rank_watch
    from zoo.runtime import ranks

    found: list[Any] = []
    first, watch = ranks.rank() == 0, rank_watch.watch()
    if first:
        try:
            with interruptible():
                found = [read()]
        except raises as error:
            found = [next(index for index, kind in enumerate(raises) if isinstance(error, kind)), str(error)]
    if watch is not None:
        watch.release() if first else watch.wait()
    value, *message = ranks.shared(found)
    if message:
        raise raises[value](*message)
    return value  # type: ignore[no-any-return]


class RankInterrupts(Interrupts):
    """Handles Ctrl-C on rank 0 of several. It ends all ranks; while a text is generated it ends that text, after a step.

    KeyboardInterrupt comes nowhere else than in `on_rank_0`, where the other ranks get it, too: a rank that left its work
    at some instruction would no longer take part in the collectives of the others.
    """

    def __init__(self) -> None:
        super().__init__(self._pressed)
        self.saves = True
        self.generating = False
        # Whether KeyboardInterrupt was raised in the main thread before the listener knew of the Ctrl-C.
        self.raised = False

    def _pressed(self, line: str) -> None:
        if self.raised:
            self.raised, self.count = False, 0
        elif not self.generating:
            end()


def until_interrupted(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps of a generation. Ctrl-C raises KeyboardInterrupt, on all ranks after the same step."""
    if not launched():
        yield from steps
        return
    from zoo.runtime import ranks

    work = interrupts()
    if work is not None:
        work.generating, work.raised = True, False
    try:
        for step in steps:
            yield step
            if ranks.agreed(work is not None and work.asked()):
                raise KeyboardInterrupt
    finally:
        if work is not None:
            work.generating, work.count = False, 0


def interrupts() -> RankInterrupts | None:
    """The handler of Ctrl-C on rank 0; None on the other ranks, which ignore Ctrl-C."""
    listener = listen()
    return listener.work if listener is not None and isinstance(listener.work, RankInterrupts) else None


@contextmanager
def interruptible() -> Iterator[None]:
    """A context in which Ctrl-C raises KeyboardInterrupt on rank 0."""
    listener, work = listen(), interrupts()
    if listener is None or work is None:
        yield
        return
    listener.work = None
    try:
        yield
    except KeyboardInterrupt:
        work.raised = True
        raise
    finally:
        listener.work = work
