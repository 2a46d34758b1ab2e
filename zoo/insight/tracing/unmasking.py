"""Masks in a trace: the candidates of a masked language model, the passes of masked diffusion.

Axes: L predicted positions, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from zoo.errors import PromptError
from zoo.generation.prompt import mask_id
from zoo.insight.tracing.choices import LOGITS
from zoo.insight.tracing.pictures import numbers
from zoo.insight.tracing.view import Hidden, Uncovering

if TYPE_CHECKING:
    from zoo.insight.tracing.result import Trace

COUNT = 5  # tokens of a prediction


def hidden_of(trace: Trace) -> tuple[Hidden, ...]:
    """The candidates for each mask, of a strategy that gives several answers."""
    found: dict[int, list[tuple[int, float]]] = {}
    for step in trace.steps:
        if step.candidate is not None and {"mask", "token", "probability"} <= set(step.candidate):
            each = step.candidate
            found.setdefault(int(each["mask"]), []).append((int(each["token"]), float(each["probability"])))
    if not found:
        return ()
    mask = mask_id(trace.loaded)
    places = [position for position, id in enumerate(trace.prompt) if id == mask]
    return tuple(
        Hidden(
            places[number - 1] if 0 < number <= len(places) else 0,
            tuple(token for token, _ in pairs),
            numbers(np.array([probability for _, probability in pairs])),
        )
        for number, pairs in sorted(found.items())
    )


def uncoverings_of(trace: Trace) -> tuple[Uncovering, ...]:
    """The passes of a run that reads the whole text each time and uncovers masks; none of another run."""
    passes = [p for p in trace.passes if not p.cached and p.kind != "encode" and p.tokens]
    if trace.grows or not passes or any(step.candidate is not None for step in trace.steps):
        return ()
    try:
        mask = mask_id(trace.loaded)
    except PromptError:
        return ()
    found, start, size = [], -1, 0
    for number, p in enumerate(passes):
        masked = [position for position, id in enumerate(p.tokens) if id == mask]
        logits = next((p.values[a] for a in LOGITS if a in p.values), None)
        if not masked or logits is None:
            return ()
        rows = np.array(logits.astype(mx.float32))[0].astype(np.float64)  # (L, V)
        if start < 0 or masked[0] >= start + size:
            start = masked[0]  # the next block
        size = len(rows)
        after = passes[number + 1].tokens if number + 1 < len(passes) else None
        predictions = tuple(_prediction(rows[at - start], at, mask) for at in masked if at - start < size)
        kept = [h.position for h in predictions if after is None or after[h.position] != mask]
        found.append(Uncovering(tuple(p.tokens), predictions, tuple(kept)))
    return tuple(found)


def _prediction(logits: np.ndarray, position: int, mask: int) -> Hidden:
    logits = logits.copy()
    logits[mask] = -np.inf  # the mask itself is no prediction
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    best = np.argsort(-shares, kind="stable")[:COUNT]
    return Hidden(position, tuple(int(id) for id in best), numbers(shares[best]))
