"""How a model is divided among ranks: each rank has a recipe of its own, and its share of every parameter. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

from zoo.errors import RecipeError
from zoo.frozen import Frozen, frozen

Range = tuple[int, int]
INSTEAD = "use another number of ranks, `parallel` pipeline, or data for a file of prompts"


@frozen()
class Cut(Frozen):
    """What a rank has of a parameter: some ranges of one axis, one after the other."""

    axis: int
    ranges: tuple[Range, ...]


@frozen()
class Share(Frozen):
    """The rank that a part is divided for, and how many ranks there are.

    `group`: the packed matrices of the checkpoint have groups of so many inputs, which are not cut (1: none is packed).
    `memory` is that of each rank, in any unit; without it all have the same. `heads`: of a part that belongs to attention's
    heads, those that the rank has; None for all. `whole_experts`: a mixture of experts is divided by these, not by their hidden
    units.
    """

    rank: int
    ranks: int
    group: int = 1
    memory: tuple[int, ...] = ()
    heads: Range | None = None
    whole_experts: bool = False

    def of(self, name: str, count: int, unit: int = 1) -> Range:
        """The first of `count`, and the one after the last, that this rank has: as many on each, in whole units.

        RecipeError, naming `name`, where they do not divide evenly.
        """
        if count % (unit * self.ranks):
            packed = f", in whole groups of {unit} for packed matrices," if unit > 1 else ""
            raise RecipeError(
                f"{name}: {count}{packed} does not divide evenly among {self.ranks} ranks; {INSTEAD}"
            )
        each = count // self.ranks
        return self.rank * each, (self.rank + 1) * each

    def inputs(self, name: str, count: int, width: int = 1) -> Range:
        """This rank's range of `count` items, each of which is `width` inputs of a matrix. Packed groups are not cut.

        RecipeError as for `of`.
        """
        return self.of(name, count, 1 if count * width % self.group else self.group // gcd(self.group, width))


@frozen()
class Source(Frozen):
    """The rank that hands over a layer's input; `widened`: in float32, whatever the embedding's dtype."""

    rank: int
    widened: bool = False


@dataclass(frozen=True)
class Division:
    """What one rank has of a part. Names are paths below the part: "output.weight".

    `spec` describes the part on this rank. `cuts` has the parameters of which the rank has a share; others are whole on
    every rank. `once`: the parameters that rank 0 alone has, zero on other ranks, since they are added to a sum. `sums`: the
    modules, "" for the part itself, whose outputs the ranks add. `heads`: which heads of attention the rank has.

    Of a pipeline: `absent` are the modules of other ranks, `receives` those whose input comes from a rank, `sends` those whose
    output goes to one, `broadcasts` those whose output on a rank is all ranks'.
    """

    spec: Any  # a `Spec`, whose module imports this one
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    once: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    heads: Mapping[str, Range] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    receives: Mapping[str, Source] = field(default_factory=dict)
    sends: Mapping[str, int] = field(default_factory=dict)
    broadcasts: Mapping[str, int] = field(default_factory=dict)

    def below(self, path: str) -> Division:
        """The same with the names of a part at `path`."""

        def named(name: str) -> str:
            return ".".join(step for step in (path, name) if step)

        found: dict[str, Any] = {
            name: {named(key): value for key, value in getattr(self, name).items()} for name in TABLES
        }
        found |= {name: tuple(map(named, getattr(self, name))) for name in LISTS}
        return replace(self, **found)


TABLES, LISTS = ("cuts", "heads", "receives", "sends", "broadcasts"), ("once", "sums", "absent")


def outputs(layer: str, *ranges: Range) -> dict[str, Cut]:
    """The cuts of a linear layer, or a stack of them, of whose outputs a rank has these ranges."""
    return {f"{layer}.weight": Cut(-2, ranges), f"{layer}.bias": Cut(-1, ranges)}


def inputs(layer: str, *ranges: Range) -> dict[str, Cut]:
    """The cuts of a linear layer, or a stack, that reads these ranges: its output is a term of a sum."""
    return {f"{layer}.weight": Cut(-1, ranges)}


def joined(spec: Any, *divisions: Division) -> Division:
    """One division of `spec`, of what the divisions of its parts say."""
    found = Division(spec)
    for each in divisions:
        both: dict[str, Any] = {name: {**getattr(found, name), **getattr(each, name)} for name in TABLES}
        both |= {name: getattr(found, name) + getattr(each, name) for name in LISTS}
        found = replace(found, **both)
    return found
