"""Pearson's chi-square test of counts, without a table."""

from __future__ import annotations

from math import sqrt

import numpy as np


def deviation(counts, law):
    """How far counts lie from what a law (probabilities) predicts, in standard deviations of a normal variable.

    By Wilson and Hilferty's approximation (1931) of the chi-square distribution; above 4 is less than one in 30,000.
    A count where the law has none is infinitely far.
    """
    counts, law = np.asarray(counts, float), np.asarray(law, float)
    if counts[law == 0].any():
        return float("inf")
    counts, law = counts[law > 0], law[law > 0]
    expected = counts.sum() * law / law.sum()
    statistic, freedom = ((counts - expected) ** 2 / expected).sum(), len(law) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / sqrt(spread)
