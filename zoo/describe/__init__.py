"""Describes recipes without running them: facts, differences, diagrams, pages. Imports no mlx.

Nothing here knows a family: a third party's specs are described like the zoo's own, and its plugin may add facts.
"""

from zoo.describe.described import Described, base_of, describe
from zoo.describe.facts.fact import Fact, FactRow, Sheet, aligned, amount, compare, fields_of, text_of
from zoo.describe.facts.ranks import Cluster, Link
from zoo.describe.facts.sheet import SheetLine, common_context, facts_of, short

__all__ = [
    "Cluster",
    "Described",
    "Fact",
    "FactRow",
    "Link",
    "Sheet",
    "SheetLine",
    "aligned",
    "amount",
    "base_of",
    "common_context",
    "compare",
    "describe",
    "facts_of",
    "fields_of",
    "short",
    "text_of",
]
