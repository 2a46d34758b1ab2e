"""The weight rules that Mamba needs of its own. Imports no mlx."""

from dataclasses import dataclass

from zoo.weights import Rename


@dataclass(frozen=True)
class NegativeExp(Rename):
    """The logarithm of −A, (N, E), where a file holds A itself, (E, N)."""

    def loaded(self, tensor):
        """The logarithm; a number that is not below zero has none: NaN, which is refused later."""
        import mlx.core as mx

        return mx.log(-tensor).T

    def saved(self, parameter):
        """A itself."""
        import mlx.core as mx

        return -mx.exp(parameter.T)
