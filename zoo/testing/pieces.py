"""Reads a text in pieces with a cache. Axes: B batch, S source length, T length, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import mlx.core as mx

from zoo.testing.subjects import Subject, translates


def logits_in_pieces(
    subject: Subject,
    text: mx.array,
    cuts: Iterable[int],
    *,
    source: mx.array | None = None,
    mask: mx.array | None = None,
    prefix: int | mx.array | None = None,
) -> mx.array:
    """The logits (B, T, V) of texts (B, T) that are read with a cache in the pieces between `cuts`.

    `source` (B, S) is what an encoder-decoder translates; its `mask` (B, S) marks that, a decoder's (B, T) the padding
    of the first piece. `prefix` is the length of a prompt that sees itself both ways, within the first piece.
    """
    _, step = reader(subject, source, mask, prefix)
    ends = [0, *cuts, text.shape[1]]
    return mx.concatenate([step(text[:, start:end]) for start, end in pairwise(ends) if start < end], axis=1)


def reader(
    subject: Subject,
    source: mx.array | None = None,
    mask: mx.array | None = None,
    prefix: int | mx.array | None = None,
) -> tuple[list[Any], Callable[[mx.array], mx.array]]:
    """Empty caches, and the function that reads the next tokens (B, T) with them and gives their logits (B, T, V).

    An encoder-decoder translates `source`, else the subject's first text.
    """
    model, caches = subject.model, subject.model.make_cache()
    if translates(subject):
        # The first pass computes the source's keys and values: no other needs the memory they come from.
        memory = [model.encode(subject.tokens[:1] if source is None else source, mask)]
        return caches, lambda tokens: model.decode(tokens, memory.pop() if memory else None, caches, mask)
    given = {"mask": mask, "prefix": prefix}
    first = {name: value for name, value in given.items() if value is not None}

    def step(tokens: mx.array) -> mx.array:
        logits = model(tokens, caches, **first)
        first.clear()
        return logits

    return caches, step
