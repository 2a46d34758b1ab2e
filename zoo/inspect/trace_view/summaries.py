"""Values of a trace, summarised for pictures or as numbers. Masks in it: the candidates of a masked language model, the
passes of masked diffusion.

Axes: T tokens, S attended tokens, H heads, k experts of a token, L predicted positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from zoo.generation.loop.prompt import mask_id
from zoo.inspect.trace_view.view import (
    AttentionOperands,
    HeadAttention,
    MaskPrediction,
    Numbers,
    Rows,
    Strip,
    UnmaskingPass,
)
from zoo.inspect.tracing.traced_run import Trace

BINS = 64  # of the residual stream
FEWER = 32  # of other values
MOST_ROWS = 128
COUNT = 5  # tokens of a prediction
OPERANDS_TOLERANCE = 5e-3  # between weights and those recomputed from operands of 16 bits


def rounded(values: np.ndarray, digits: int = 4) -> Numbers:
    """A vector rounded to significant digits; infinities and NaN become 0."""
    return tuple(float(f"{x:.{digits}g}") if np.isfinite(x) else 0.0 for x in values.tolist())


def strip(value: np.ndarray, axes: Sequence[str], bins: int) -> Strip:
    """A value as rows of at most `bins` means, one row a token if it has such an axis; at most the last 128 rows."""
    rows = as_rows(value, axes)
    first = max(len(rows) - MOST_ROWS, 0)
    rows = rows[first:].astype(np.float64)
    width = rows.shape[1]
    size = max(-(-width // bins), 1)
    starts = np.arange(0, width, size)
    counts = np.minimum(starts + size, width) - starts
    means = np.add.reduceat(rows, starts, axis=1) / counts
    return Strip(size, first, tuple(rounded(row, 3) for row in means))


def as_rows(value: np.ndarray, axes: Sequence[str]) -> np.ndarray:
    """A value as a matrix with one row a token: along T, else S, else its first axis."""
    value = np.atleast_1d(value)
    named = [name for name in ("T", "S") if name in axes and axes.index(name) < value.ndim]
    along = axes.index(named[0]) if named else (0 if value.ndim > 1 else None)
    if along is None:
        return value[None]
    return np.moveaxis(value, along, 0).reshape(value.shape[along], -1)


def mean_norm(value: np.ndarray, axes: Sequence[str]) -> float | None:
    """The mean L2 norm over tokens; None for integers, which are counts or indices."""
    if not np.issubdtype(value.dtype, np.floating) or not value.size:
        return None
    return rounded(np.linalg.norm(as_rows(value, axes), axis=1).mean()[None], 6)[0]


def head_attention(weights: np.ndarray, first_row: int, across: bool) -> HeadAttention:  # (T, S)
    """One head of a pattern with its rows from `first_row` on; with `across`, its columns are the source's tokens."""
    share = np.where(weights > 0, weights, 1)
    entropy = -(share * np.log2(share)).sum(axis=1)
    index = np.arange(weights.shape[0])
    own = np.zeros(1) if across else weights[index, index]
    before = np.zeros(1) if across or len(index) < 2 else weights[index[1:], index[:-1]]
    rows: Rows = tuple(
        tuple(float(x) if x else 0 for x in row) for row in np.round(weights[first_row:], 3).tolist()
    )
    return HeadAttention(
        rows,
        tuple(weights[first_row:].argmax(axis=1).tolist()),
        rounded(np.abs(entropy[first_row:]), 4),
        *(round(float(mean), 4) for mean in (weights[:, 0].mean(), before.mean(), own.mean())),
    )


def attention_operands(
    pattern: np.ndarray, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float
) -> AttentionOperands | None:  # (H, T, S), (H, T, K), (G, S, K), (G, S, V)
    """The operands of a pattern; None if softmax(Q Kᵀ · scale) over neighbouring columns does not give it.

    Added biases and masks with gaps are such other formulas.
    """
    seen = (pattern != 0).max(axis=0)  # (T, S)
    first, end = seen.argmax(axis=1), seen.shape[1] - seen[:, ::-1].argmax(axis=1)
    column = np.arange(seen.shape[1])
    masked = (column < first[:, None]) | (column >= end[:, None])  # (T, S)
    shared = np.repeat(keys, len(queries) // len(keys), axis=0)  # (H, S, K)
    scores = np.where(masked, -np.inf, queries @ shared.swapaxes(1, 2) * scale)  # (H, T, S)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    if not np.abs(weights - pattern).max(initial=0) < OPERANDS_TOLERANCE:
        return None
    spans = tuple(zip(first.tolist(), end.tolist(), strict=True))
    rounded_operands = (rounded_matrices(queries), rounded_matrices(keys), rounded_matrices(values))
    return AttentionOperands(*rounded_operands, scale, spans)


def rounded_matrices(values: np.ndarray) -> tuple[Rows, ...]:
    """Matrices (N, T, K), rounded to 4 digits of the largest number."""
    largest = np.abs(values).max(initial=0)
    digits = 3 - int(np.floor(np.log10(largest))) if largest > 0 else 0
    numbers = np.round(values, digits) + 0.0  # no negative zero
    return tuple(tuple(map(tuple, matrix)) for matrix in numbers.tolist())


def mask_predictions(trace: Trace) -> tuple[MaskPrediction, ...]:
    """The candidates for each mask, from a strategy that gives several answers."""
    candidates: dict[int, list[tuple[int, float]]] = {}
    for step in trace.steps:
        if step.candidate is not None and {"mask", "token", "probability"} <= set(step.candidate):
            each = step.candidate
            candidates.setdefault(int(each["mask"]), []).append(
                (int(each["token"]), float(each["probability"]))
            )
    if not candidates:
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
        for number, pairs in sorted(candidates.items())
    )


def unmasking_passes(trace: Trace) -> tuple[UnmaskingPass, ...]:
    """The passes of masked diffusion, which reads the whole text each time; none for another run."""
    passes = [p for p in trace.passes if not p.cached and p.kind != "encode" and p.tokens]
    drawn = trace.chosen.blocks()
    if drawn is None or len(drawn.choices) != len(passes):
        return ()
    mask = mask_id(trace.loaded)
    unmasked, start, size = [], -1, 0
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
        unmasked.append(UnmaskingPass(tuple(p.tokens), predictions, tuple(kept)))
    return tuple(unmasked)


def _prediction(probabilities: np.ndarray, chosen: int, position: int) -> MaskPrediction:
    best = np.argsort(-probabilities, kind="stable")[:COUNT]
    shown = list(dict.fromkeys((*best.tolist(), chosen)))
    return MaskPrediction(position, chosen, tuple(shown), rounded(probabilities[shown]))


def value_lines(trace: Trace, address: str) -> Iterator[str]:
    """One value as lines of numbers: the last axis along a line, an empty line between matrices."""
    value = trace[address]
    rows = value.reshape(-1, value.shape[-1]) if value.ndim else value.reshape(1, 1)
    height = value.shape[-2] if value.ndim > 1 else 1
    for number, row in enumerate(rows):
        if number and number % height == 0:
            yield ""
        yield " ".join(f"{x:.6g}" for x in row.tolist())


def value_json(trace: Trace, address: str) -> dict[str, Any]:
    """One value with its description; infinities and NaN are null."""
    value, about = trace[address], trace.about(address)
    finite = value
    if value.dtype.kind == "f":
        finite = value.astype(object)
        finite[~np.isfinite(value)] = None
    return {
        "address": address,
        "axes": about.axes.split()[1:],
        "shape": list(value.shape),
        "dtype": trace.dtype(address),
        "unit": about.unit,
        "summary": about.summary,
        "values": finite.tolist(),
    }
