"""95 % intervals: of means, of weighted sums of means, and of any statistic of many items.

The interval of a mean is Student's: mean ± t · s/√n (Student, 1908). A weighted sum of the means of independent arms has
the degrees of freedom of Welch and Satterthwaite (Welch, 1947). For paired arms the sum is computed item by item first.
The interval of a share of items is Wilson's score interval (Wilson, 1927), which has a width where all items agree, too.
The interval of another statistic is the bootstrap's, by percentiles (Efron and Tibshirani, 1993, section 13.3).
Imports no mlx.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, variance
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate from `count` values and the bounds of its interval, None where one value gives none."""

    value: float
    low: float | None
    high: float | None
    count: int


def interval(values: Sequence[float]) -> Interval:
    """The mean of independent values and its interval; ValueError for none."""
    return contrast([(1.0, values)])


def contrast(arms: Sequence[tuple[float, Sequence[float]]], paired: bool = False) -> Interval:
    """Σ weight · mean over the arms, each a weight and its values, and its interval.

    `paired`: value i of every arm is of the same item, and all have as many values. ValueError for an arm without values.
    """
    if not all(values for _, values in arms):
        raise ValueError("an arm has no values")
    if paired and len(arms) > 1:
        sums = [
            sum(weight * value for (weight, _), value in zip(arms, row, strict=True))
            for row in zip(*(values for _, values in arms), strict=True)
        ]
        return contrast([(1.0, sums)])
    mean = sum(weight * fmean(values) for weight, values in arms)
    count = min(len(values) for _, values in arms)
    if count < 2:
        return Interval(mean, None, None, count)
    parts = [(weight**2 * variance(values) / len(values), len(values) - 1) for weight, values in arms]
    squared = sum(part for part, _ in parts)  # of the standard error
    if squared == 0:
        return Interval(mean, mean, mean, count)
    freedom = squared**2 / sum(part**2 / degrees for part, degrees in parts)
    half = student(freedom) * math.sqrt(squared)
    return Interval(mean, mean - half, mean + half, count)


def share(hits: int, count: int) -> Interval:
    """The share of `hits` among `count` independent items, and its interval; ValueError for no item.

    Wilson (1927): those p whose normal approximation does not reject hits / count.

    >>> found = share(8, 8)
    >>> round(found.low, 3), found.high
    (0.676, 1.0)
    """
    if not 0 <= hits <= count or not count:
        raise ValueError(f"{hits} of {count} items is no share")
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    value, scale = hits / count, 1 + z**2 / count
    centre = (value + z**2 / (2 * count)) / scale
    half = z / scale * math.sqrt(value * (1 - value) / count + z**2 / (4 * count**2))
    # The bounds at the ends are exact, but for rounding.
    low, high = (0.0 if hits == 0 else centre - half), (1.0 if hits == count else centre + half)
    return Interval(value, low, high, count)


@cache
def student(freedom: float) -> float:
    """The t between whose −t and t Student's distribution of `freedom` (≥ 1) degrees has the probability `LEVEL`.

    With t = √ν · tan θ the density is proportional to cos^(ν−1) θ, whose integral up to θ is found by Simpson's rule
    and set equal to `LEVEL` by bisection.
    """
    whole = _cosines(math.pi / 2, freedom - 1)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _cosines(middle, freedom - 1) < LEVEL * whole:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _cosines(end: float, power: float, pieces: int = 400) -> float:
    """∫ cos^power from 0 to `end` by Simpson's rule."""
    step = end / pieces
    heights = [max(math.cos(step * index), 0.0) ** power for index in range(pieces + 1)]
    return step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))


RESAMPLES, SEED = 2000, 0  # samples of the bootstrap, and the seed of their draw


def bootstrap(
    count: int, statistic: Callable[[numpy.ndarray], float], resamples: int = RESAMPLES
) -> Interval:
    """A statistic of `count` items and its percentile interval over `resamples` samples with replacement.

    `statistic` takes how often each item is counted, (count,). The samples depend on `count` alone.
    """
    import numpy

    value = statistic(numpy.ones(count, dtype=numpy.int64))
    if count < 2:
        return Interval(value, None, None, count)
    draw = numpy.random.default_rng(SEED)
    statistics = [
        statistic(numpy.bincount(draw.integers(count, size=count), minlength=count)) for _ in range(resamples)
    ]
    low, high = numpy.quantile(statistics, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Interval(value, low, high, count)
