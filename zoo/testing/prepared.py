"""The check of the prepared step."""

from __future__ import annotations

import mlx.core as mx

from zoo.prepared import prepared_step
from zoo.testing.subjects import Check, Subject, same, streams


def prepared_step_equals_the_model(subject: Subject) -> None:
    """Texts are written by a step with less work for Python; its logits must be those of the model's own modules."""
    model, tokens = subject.model, subject.tokens
    step = prepared_step(model)
    assert step is not None
    read = tokens.shape[1] - 4
    mask = None
    if "left" in subject.protocol.padding:
        padding = [min(row, read - 1) for row in range(tokens.shape[0])]
        mask = mx.array([[0] * left + [1] * (read - left) for left in padding])  # (B, T)
    caches = [model.make_cache(), model.make_cache()]
    for cache in caches:
        mx.eval(model(tokens[:, :read], cache, mask))
    for place in range(read, tokens.shape[1]):
        token = tokens[:, place : place + 1]  # (B, 1)
        same(step(token, caches[1]), model(token, caches[0])[:, 0], f"logits of token {place + 1}")


def is_prepared(subject: Subject) -> bool:
    """Whether the model has such a step."""
    return streams(subject) and prepared_step(subject.model) is not None


CHECKS = (Check.of(prepared_step_equals_the_model, is_prepared),)
