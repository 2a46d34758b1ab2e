"""Masks in a trace: the candidates of a masked language model, the passes of masked diffusion.

Axes: L predicted positions, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from zoo.generation.loop.prompt import mask_id
from zoo.inspect.trace_view.summaries import rounded
from zoo.inspect.trace_view.view import MaskPrediction, UnmaskingPass
from zoo.inspect.tracing.traced_run import Trace

COUNT = 5  # tokens of a prediction


def mask_predictions(trace: Trace) -> tuple[MaskPrediction, ...]:
    """The candidates for each mask, from a strategy that gives several answers."""
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
        MaskPrediction(
            places[number - 1] if 0 < number <= len(places) else 0,
            pairs[0][0],
            tuple(token for token, _ in pairs),
            rounded(np.array([probability for _, probability in pairs])),
        )
        for number, pairs in sorted(found.items())
    )


def unmasking_passes(trace: Trace) -> tuple[UnmaskingPass, ...]:
    """The passes of masked diffusion, which reads the whole text each time; none for another run."""
    passes = [p for p in trace.passes if not p.cached and p.kind != "encode" and p.tokens]
    drawn = trace.chosen.blocks()
    if drawn is None or len(drawn.choices) != len(passes):
        return ()
    mask = mask_id(trace.loaded)
    found, start, size = [], -1, 0
    for number, (p, (stages, tokens)) in enumerate(zip(passes, drawn.choices, strict=True)):
        masked = [position for position, id in enumerate(p.tokens) if id == mask]
        if not masked:
            return ()
        if start < 0 or masked[0] >= start + size:
            start = masked[0]  # the next block
        probabilities = np.array(mx.softmax(stages[-1].logits[0], axis=-1))  # (L, V)
        chosen: list[int] = tokens[0].tolist()  # type: ignore[assignment]
        size = len(chosen)
        after = passes[number + 1].tokens if number + 1 < len(passes) else None
        predictions = tuple(
            _prediction(probabilities[at - start], chosen[at - start], at)
            for at in masked
            if at - start < size
        )
        kept = [h.position for h in predictions if after is None or after[h.position] != mask]
        found.append(UnmaskingPass(tuple(p.tokens), predictions, tuple(kept)))
    return tuple(found)


def _prediction(probabilities: np.ndarray, chosen: int, position: int) -> MaskPrediction:
    best = np.argsort(-probabilities, kind="stable")[:COUNT]
    shown = list(dict.fromkeys((*best.tolist(), chosen)))
    return MaskPrediction(position, chosen, tuple(shown), rounded(probabilities[shown]))
