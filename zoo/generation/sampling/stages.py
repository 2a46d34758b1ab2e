"""The chain from a model's logits to the distribution of the next token: its steps, what each leaves, and who observes it.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

import mlx.core as mx

if TYPE_CHECKING:
    from zoo.generation.settings import Settings


class LogitsProcessor(NamedTuple):
    """A step of the chain: logits (…, V) to logits (…, V). `name` and `value` are those of the setting that asks for it."""

    name: str
    value: float | None
    function: Callable[[mx.array], mx.array]


class LogitsStage(NamedTuple):
    """The logits (…, V), float32, after a step of the chain; the first, "model", has the model's own."""

    name: str
    value: float | None
    logits: mx.array


def stages_of(logits: mx.array, processors: Iterable[LogitsProcessor]) -> Iterator[LogitsStage]:
    """The chain of `processors` from the logits (…, V) on: tokens are chosen by the last stage."""
    logits = logits.astype(mx.float32)
    yield LogitsStage("model", None, logits)
    for name, value, function in processors:
        logits = function(logits)
        yield LogitsStage(name, value, logits)


# Called with each choice of a sequence: its stages, (…, V), and the tokens that were chosen by the last of them, (…).
RecordChoice = Callable[[Sequence[LogitsStage], mx.array], None]


class Observer(Protocol):
    """Observes how tokens are chosen."""

    def sequence(self, settings: Settings) -> RecordChoice:
        """Called before the first choice of a sequence. The function that it returns is called with each choice."""


_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Let `observer` see the choices of every sequence that begins within the block."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def record_of(settings: Settings) -> RecordChoice | None:
    """What records the choices of a sequence that begins now, None where nobody observes."""
    observer = _OBSERVER.get()
    return None if observer is None else observer.sequence(settings)
