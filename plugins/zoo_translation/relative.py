"""T5's relative position bias: a learned number for each head and each bucket of distances. Imports no mlx.

Axes: T queries, S keys, H heads.
"""

from dataclasses import dataclass

from zoo.errors import RecipeError
from zoo.recipe import Spec


@dataclass(frozen=True)
class RelativeBias(Spec):
    """One number a head for each bucket of distances, added to the scores of every layer (Raffel et al., 2019, 2.1).

    Half of the `buckets` of a direction hold one distance each, the others ever more, up to `max_distance`; all beyond
    share the last. `bidirectional`: half of all buckets are for keys after the query, as an encoder needs.
    """

    kind, name = "position", "relative-bias"
    heads: int
    buckets: int = 32
    max_distance: int = 128
    bidirectional: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets < (4 if self.bidirectional else 2):
            raise RecipeError(f"buckets: {self.buckets} are too few")
        if self.max_distance <= self.max_exact:
            raise RecipeError(
                f"max_distance: {self.max_distance} must exceed the {self.max_exact} distances with a bucket each"
            )

    @property
    def title(self) -> str:
        """The paper's name."""
        return "relative position bias"

    @property
    def one_direction(self) -> int:
        """The buckets of one direction."""
        return self.buckets // 2 if self.bidirectional else self.buckets

    @property
    def max_exact(self) -> int:
        """The number of distances, from 0 up, that have a bucket each."""
        return self.one_direction // 2

    def own_parameters(self, dim: int) -> int:
        return self.buckets * self.heads
