"""Checks of what a strategy yields: a plugin's mistake is an error of one line that names it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from zoo.errors import PluginError
from zoo.generation.loop.step import Step


def checked_steps(steps: Any, label: str) -> Iterator[Step]:
    """The steps of the strategy called `label`, as they come.

    PluginError, at once, when it gave nothing to iterate over; while it runs, when it yields something else than a
    `Step`, or one after the last; at its end, when there was no step or the last has no finish reason.
    """
    if not isinstance(steps, Iterable):
        raise PluginError(f"{label} gave {_kind(steps)}, not an iterator of zoo.Step")
    return _each(iter(steps), label)


def _each(steps: Iterator[Any], label: str) -> Iterator[Step]:
    last = None
    try:
        for step in steps:
            if not isinstance(step, Step):
                raise PluginError(f"{label} yielded {_kind(step)}, not a zoo.Step")
            if not isinstance(step.text, str):
                raise PluginError(f"{label} yielded a step whose text is {_kind(step.text)}")
            if last is not None and last.finish_reason is not None:
                raise PluginError(
                    f"{label} yielded a step after the one whose finish_reason is {last.finish_reason!r}"
                )
            last = step
            yield step
    finally:
        if isinstance(steps, Generator):  # who stops early stops it, too
            steps.close()
    if last is None:
        raise PluginError(f"{label} yielded no step: the last of at least one has a finish_reason")
    if last.finish_reason is None:
        raise PluginError(f"{label} ended with a step that has no finish_reason")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
