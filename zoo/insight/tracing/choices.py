"""How each token was chosen: logits, then probabilities before and after temperature and each filter.

Axes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np

from zoo.frozen import Frozen, frozen
from zoo.generation.choosing.filters import narrowing
from zoo.generation.choosing.sampling import Sampling

LOGITS = ("logits", "decoder.head", "head")  # the addresses at which a model's logits may be


@frozen()
class Stage(Frozen):
    """The distribution after one step of sampling.

    `kept` tokens have a probability above zero; `probabilities` are those of the choice's candidates, in their order.
    """

    name: str
    setting: float | None
    kept: int
    probabilities: tuple[float, ...]


@frozen()
class Choice(Frozen):
    """One generated token: the likeliest candidates, and what sampling made of their probabilities.

    `candidates` are token ids, the likeliest first, with their `logits`. `logsumexp` is that of all logits, so that
    exp(logit − logsumexp) is a token's probability. `entropy` (bits) and `rank`, from 0, of the chosen token are those
    of the model's own distribution. `rest` has the mean logit and the number of the tokens that are not candidates, put
    together in at most 64 groups of like logits, the likeliest first.
    """

    token: int
    rank: int
    logsumexp: float
    entropy: float
    candidates: tuple[int, ...]
    logits: tuple[float, ...]
    stages: tuple[Stage, ...]
    rest: tuple[tuple[float, int], ...] = ()


def choice_of(logits: mx.array, token: int, sampling: Sampling, count: int) -> Choice:  # (V,)
    """How `token` was chosen from these logits: the `count` likeliest candidates, and the chosen one if it is not among them."""
    logits = logits.astype(mx.float32)
    row = np.array(logits)
    order = np.argsort(-row, kind="stable")
    rank = int(np.nonzero(order == token)[0][0])
    shown = [int(id) for id in order[:count]]
    if token not in shown:
        shown.append(token)
    total = float(mx.logsumexp(logits).item())
    own = np.exp(row - total)
    entropy = -float(np.sum(own * np.log2(np.maximum(own, 1e-30))))
    stages = tuple(_stage(name, setting, array, shown) for name, setting, array in _stages(logits, sampling))
    logits_shown = tuple(float(row[id]) for id in shown)
    rest = _grouped(np.delete(row, shown))
    return Choice(token, rank, total, entropy, tuple(shown), logits_shown, stages, rest)


def _grouped(logits: np.ndarray, groups: int = 64) -> tuple[tuple[float, int], ...]:
    """The mean and the number of the logits of each group: those between two of `groups` + 1 evenly spaced values."""
    logits = logits[np.isfinite(logits)]
    if not logits.size:
        return ()
    edges = np.linspace(logits.min(), logits.max(), groups + 1)[1:-1]
    of = np.digitize(logits, edges)
    counts = np.bincount(of, minlength=groups)
    sums = np.bincount(of, weights=logits, minlength=groups)
    return tuple((float(sums[g] / counts[g]), int(counts[g])) for g in range(groups)[::-1] if counts[g])


def _stages(logits: mx.array, sampling: Sampling) -> Iterator[tuple[str, float | None, mx.array]]:
    """The logits (V,) after each step, in the order of `zoo.generation.choosing.filters.narrowing`."""
    row = logits[None]
    yield "model", None, row[0]
    if sampling.temperature == 0:
        return
    row = row / sampling.temperature
    yield "temperature", sampling.temperature, row[0]
    for name, setting, narrow in narrowing(sampling):
        row = narrow(row)
        yield name, float(setting), row[0]
    for narrow in sampling.filters:
        row = narrow(row)
        yield narrow.name, None, row[0]


def _stage(name: str, setting: float | None, logits: mx.array, shown: list[int]) -> Stage:
    probabilities = np.array(mx.softmax(logits, axis=-1))
    kept = int((np.array(logits) > -np.inf).sum())
    return Stage(name, setting, kept, tuple(float(probabilities[id]) for id in shown))
