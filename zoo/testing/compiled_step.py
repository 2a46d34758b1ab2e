"""The check of the compiled decode step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mlx.core as mx

from zoo.compiled_step import compiled_step
from zoo.testing.subjects import Subject, same, streams, translates


def compiled_step_equals_the_model(subject: Subject) -> None:
    """The compiled decode step must give the logits of the model's own modules."""
    tokens = subject.tokens
    _check(subject, None)
    if "left" in subject.model.padding:
        padding = [min(row, _read(tokens) - 1) for row in range(tokens.shape[0])]
        _check(subject, mx.array([[0] * left + [1] * (_read(tokens) - left) for left in padding]))


def _check(subject: Subject, mask: mx.array | None) -> None:  # (B, T)
    """Compare the logits of the last tokens, after those before them, which `mask` pads on the left."""
    model, tokens = subject.model, subject.tokens
    step, read = compiled_step(model), _read(tokens)
    assert step is not None
    given = tokens[:, :read]
    forward: Callable[..., mx.array] = model
    caches = [model.make_cache(), model.make_cache()]
    if subject.model.translates:
        source = None if mask is None else mask[:, ::-1]  # padded on the right
        memory, forward = model.encode(given, source), partial(model.decode, memory=None)
        for cache in caches:
            mx.eval(model.decode(given, memory, cache, source, mask))
    else:
        for cache in caches:
            mx.eval(model(given, cache, mask))
    for place in range(read, tokens.shape[1]):
        token = tokens[:, place : place + 1]  # (B, 1)
        same(step(token, caches[1]), forward(token, cache=caches[0])[:, 0], f"logits of token {place + 1}")


def _read(tokens: mx.array) -> int:
    """How many of the tokens are read before the first step."""
    return tokens.shape[1] - 4


def is_compiled(subject: Subject) -> bool:
    """Whether the model has such a step."""
    return (streams(subject) or translates(subject)) and compiled_step(subject.model) is not None
