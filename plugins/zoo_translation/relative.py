"""T5's positions: a learned number for each head and each class of distances. Imports no mlx.

Axes: T queries, S keys, H heads.
"""

from dataclasses import dataclass

from zoo.errors import RecipeError
from zoo.recipe import Spec


@dataclass(frozen=True)
class RelativeBias(Spec):
    """One number a head for each bucket of distances, added to the scores of every layer (Raffel et al., 2019, 2.1).

    Half of the `buckets` of a direction hold one distance each, the others ever more, up to `farthest`; all beyond
    share the last. `both_ways`: keys after the query have buckets of their own, half of all, as an encoder needs.
    """

    kind, name = "position", "relative-bias"
    heads: int
    buckets: int = 32
    farthest: int = 128
    both_ways: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets < (4 if self.both_ways else 2):
            raise RecipeError(f"buckets: {self.buckets} are too few")
        if self.farthest <= self.single:
            raise RecipeError(
                f"farthest: {self.farthest} must exceed the {self.single} distances with a bucket each"
            )

    @property
    def one_way(self) -> int:
        """The buckets of one direction."""
        return self.buckets // 2 if self.both_ways else self.buckets

    @property
    def single(self) -> int:
        """How many distances, from 0 up, have a bucket each."""
        return self.one_way // 2

    def own_parameters(self, dim: int) -> int:
        return self.buckets * self.heads
