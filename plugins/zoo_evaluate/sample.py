"""A metric's items, and how sure its value, or the difference of two models' values, is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from zoo.inspect.interval import RESAMPLES, Interval, bootstrap, share

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Sample:
    """The items of one model in one metric, of which `better` says which values are better.

    `estimate` gives the metric of the items by how often each is counted, (N,). `hits` is how many of them count as one where
    the metric is the share of these, and the others count as nothing.
    """

    better: Better
    count: int
    estimate: Callable[[np.ndarray], float]
    resamples: int = RESAMPLES
    hits: int | None = None

    def interval(self) -> Interval:
        """The metric with its 95 % interval: Wilson's of a share, else the bootstrap's."""
        if self.hits is not None:
            return share(self.hits, self.count)
        return bootstrap(self.count, self.estimate, self.resamples)

    def minus(self, other: Sample) -> Interval:
        """The difference from another model's metric on the same items: each sample of items is of both models."""
        return bootstrap(
            self.count, lambda times: self.estimate(times) - other.estimate(times), self.resamples
        )


def of_sums(
    better: Better, statistics: Sequence[Sequence[float]], value: Callable[[np.ndarray], float]
) -> Sample:
    """A function of the sums (K,) of the items' statistics (N, K): a ratio, or the score of a corpus."""
    rows = np.array(statistics, dtype=np.float64)
    return Sample(better, len(rows), lambda times: float(value(times @ rows)))


def ratio(sums: np.ndarray) -> float:
    """The first sum divided by the second."""
    return float(sums[0] / sums[1])


def mean(better: Better, values: Sequence[float]) -> Sample:
    """The mean of a value an item."""
    return of_sums(better, [(value, 1.0) for value in values], ratio)


def proportion(values: Sequence[float]) -> Sample:
    """The share of the items that are right, each 1 or 0; their mean where some are right in part."""
    sample = mean("higher", values)
    return replace(sample, hits=int(sum(values))) if set(values) <= {0, 1} else sample
