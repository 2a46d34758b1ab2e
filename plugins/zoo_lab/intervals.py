"""Means and their 95 % intervals over few runs, and those of differences. Needs the standard library only.

An interval is Student's: mean ± t · s/√n (Student, 1908). A weighted sum of the means of independent arms has the
degrees of freedom of Welch and Satterthwaite (Welch, 1947); of paired arms, the sum is taken run by run first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over `runs` runs and the bounds of its interval, None where one run gives none."""

    mean: float
    low: float | None
    high: float | None
    runs: int


def interval(values: Sequence[float]) -> Interval:
    """The mean of the values, one a run, and its interval; ValueError for none."""
    return contrast([(1.0, values)])


def contrast(arms: Sequence[tuple[float, Sequence[float]]], paired: bool = False) -> Interval:
    """Σ weight · mean over the arms, each a weight and the values of its runs, and its interval.

    `paired`: run i of every arm saw the same data, and all have as many runs. ValueError for an arm without runs.
    """
    if not all(values for _, values in arms):
        raise ValueError("an arm has no runs")
    if paired and len(arms) > 1:
        sums = [
            sum(weight * value for (weight, _), value in zip(arms, row, strict=True))
            for row in zip(*(values for _, values in arms), strict=True)
        ]
        return contrast([(1.0, sums)])
    mean = sum(weight * fmean(values) for weight, values in arms)
    runs = min(len(values) for _, values in arms)
    if runs < 2:
        return Interval(mean, None, None, runs)
    parts = [(weight**2 * variance(values) / len(values), len(values) - 1) for weight, values in arms]
    squared = sum(part for part, _ in parts)  # of the standard error
    if squared == 0:
        return Interval(mean, mean, mean, runs)
    freedom = squared**2 / sum(part**2 / degrees for part, degrees in parts)
    half = student(freedom) * math.sqrt(squared)
    return Interval(mean, mean - half, mean + half, runs)


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
