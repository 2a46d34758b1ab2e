"""Logits, and the chain of steps from a model's logits to the distribution of the next token.

Whether logits are numbers, their log-probabilities, and tokens taken out of them; what each step of the chain leaves, and
who observes it. Axes: N tokens, K alternatives, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx

from zoo.errors import ZooError
from zoo.generation.settings import Settings

NEG_INF = -float("inf")  # the logit of a token that must not be chosen


def check_numbers(highest: float, what: str) -> None:
    """ZooError unless `highest`, the largest of some logits, is a number: NaN among them makes it NaN."""
    if not math.isfinite(highest):
        raise ZooError(
            f"{what}: the model gives {'NaN' if math.isnan(highest) else 'infinity'} where numbers belong; its weights "
            "are damaged, or too large for the type it computes in: `dtype` float32 holds larger numbers than float16"
        )


def logprobs(logits: mx.array) -> mx.array:
    """Log-probabilities of the model itself, in float32, before any change: (…, V) -> (…, V)."""
    logits = logits.astype(mx.float32)
    return logits - logsumexp(logits)


GROUP = 256  # logits of a vocabulary whose exponentials are summed first


def logsumexp(logits: mx.array) -> mx.array:
    """The logarithm of the sum of the exponentials, (…, V) -> (…, 1), with float32's precision for any vocabulary.

    MLX's CPU backend adds up a row one number after another, which loses 1e-4 of 50,000 numbers; groups are summed first.
    """
    groups = logits.shape[-1] // GROUP
    if groups > 1:
        grouped = logits[..., : groups * GROUP].reshape(*logits.shape[:-1], groups, GROUP)
        rest = logits[..., groups * GROUP :]
        logits = mx.concatenate([mx.logsumexp(grouped, axis=-1), rest], axis=-1)
    return mx.logsumexp(logits, axis=-1, keepdims=True)


@dataclass
class TokenLogprobs:
    """Log-probabilities of tokens in nats, `values` (N,), and of the likeliest tokens in place of each.

    The likeliest are `likeliest` (N, K), with `likeliest_values` (N, K); None where none are asked for. The arrays need
    not be evaluated.
    """

    values: mx.array
    likeliest: mx.array | None = None
    likeliest_values: mx.array | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What there is to evaluate."""
        return [each for each in (self.values, self.likeliest, self.likeliest_values) if each is not None]

    def select(self, index: mx.array) -> TokenLogprobs:
        """Those of some rows."""
        return TokenLogprobs(*(each[index] for each in self.arrays))

    def rows(self) -> list[tuple[float, dict[int, float] | None]]:
        """Each token's log-probability, and those of the likeliest tokens by their ids, the likeliest first."""
        values: Any = self.values.tolist()
        if self.likeliest is None or self.likeliest_values is None:
            return [(value, None) for value in values]
        pairs: Any = zip(self.likeliest.tolist(), self.likeliest_values.tolist(), strict=True)
        return [(value, dict(zip(*pair, strict=True))) for value, pair in zip(values, pairs, strict=True)]


def token_logprobs(logits: mx.array, tokens: mx.array, alternatives: int = 0) -> TokenLogprobs:
    """The log-probabilities of `tokens` (N,) by logits (N, V), and of so many of the likeliest `alternatives`."""
    scores = logprobs(logits)  # (N, V)
    chosen = mx.take_along_axis(scores, tokens[:, None], axis=-1)[:, 0]
    if not alternatives:
        return TokenLogprobs(chosen)
    likeliest = mx.argsort(-scores, axis=-1)[:, :alternatives]
    return TokenLogprobs(chosen, likeliest, mx.take_along_axis(scores, likeliest, axis=-1))


def mask_tokens(logits: mx.array, tokens: Sequence[int]) -> mx.array:
    """The logits with these tokens' at minus infinity, (…, V) -> (…, V); ids outside the vocabulary change nothing."""
    gone = marked(logits.shape[-1], tokens)
    return logits if gone is None else mx.where(gone, NEG_INF, logits)


def marked(vocab: int, tokens: Iterable[int]) -> mx.array | None:
    """The tokens as booleans (V,), None for none; ids outside the vocabulary are left out."""
    known = [token for token in tokens if 0 <= token < vocab]
    if not known:
        return None
    marks = mx.zeros(vocab, mx.bool_)
    marks[mx.array(known)] = True
    return marks


def keep_only(logits: mx.array, tokens: Sequence[int]) -> mx.array:
    """Logits of zero for these tokens and minus infinity for all others: (…, V) -> (…, V)."""
    only = mx.full(logits.shape[-1:], NEG_INF, logits.dtype)
    only[mx.array(list(tokens))] = 0.0
    return mx.broadcast_to(only, logits.shape)


class LogitsProcessor(NamedTuple):
    """A step of the chain: logits (…, V) to logits (…, V). `name` is that of the setting that asks for it."""

    name: str
    function: Callable[[mx.array], mx.array]


class LogitsStage(NamedTuple):
    """The logits (…, V), float32, after a step of the chain; the first, "model", has the model's own."""

    name: str
    logits: mx.array


def stages_of(logits: mx.array, processors: Iterable[LogitsProcessor]) -> Iterator[LogitsStage]:
    """The chain of `processors` from the logits (…, V) on: tokens are chosen by the last stage."""
    logits = logits.astype(mx.float32)
    yield LogitsStage("model", logits)
    for name, function in processors:
        logits = function(logits)
        yield LogitsStage(name, logits)


# Called with each choice of a sequence: its stages, (…, V), and the tokens that were chosen by the last of them, (…).
RecordChoice = Callable[[Sequence[LogitsStage], mx.array], None]


# Called before the first choice of a sequence. The function that it returns is called with each choice.
Observer = Callable[[Settings], RecordChoice]

_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Let `observer` see how the tokens of every sequence that begins within the block are chosen."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def record_of(settings: Settings) -> RecordChoice | None:
    """What records the choices of a sequence that begins now, None where nobody observes."""
    observer = _OBSERVER.get()
    return None if observer is None else observer(settings)
