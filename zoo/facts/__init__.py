"""Facts of a model, read off its recipe: typed values with units, comparisons, differences in words. Imports no mlx.

Nothing here knows a family: a third party's specs are described like the zoo's own, and its plugin may add facts.
"""

from zoo.facts.compare import Row, aligned, compare
from zoo.facts.describe import Described, base_of, describe, described
from zoo.facts.fact import Fact, Sheet, amount, text_of
from zoo.facts.fields import fields_of
from zoo.facts.sheet import common_context, facts_of

__all__ = [
    "Described",
    "Fact",
    "Row",
    "Sheet",
    "aligned",
    "amount",
    "base_of",
    "common_context",
    "compare",
    "describe",
    "described",
    "facts_of",
    "fields_of",
    "text_of",
]
