"""Timed runs of one checkpoint, alone or beside other engines, each in a process of its own.

The engines take turns, so that a busy moment of the machine meets all of them; figures are medians. The result is a record
for a JSON file, which `compared` sets beside an older one.
"""

from zoo.insight.benchmark.figures import FIGURES, Figure, figure
from zoo.insight.benchmark.lengths import Lengths
from zoo.insight.benchmark.record import benchmark, compared, is_record, read_record, share

__all__ = [
    "FIGURES",
    "Figure",
    "Lengths",
    "benchmark",
    "compared",
    "figure",
    "is_record",
    "read_record",
    "share",
]
