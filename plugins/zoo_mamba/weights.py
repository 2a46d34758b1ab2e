"""The weight rules that Mamba needs of its own. Imports no mlx."""

from dataclasses import dataclass

from zoo.weights import Rename, fill, matches


@dataclass(frozen=True)
class NegativeExp(Rename):
    """The logarithm of −A, (N, E), where a file holds A itself, (E, N)."""

    def forward(self, source, target, recipe, join):
        """Take the logarithm; of a number that is not below zero there is none: NaN, which is refused later."""
        import mlx.core as mx

        for name, values in matches(self.source, source):
            target[fill(self.target, values)] = mx.log(-source.pop(name)).T

    def backward(self, source, target, recipe, join):
        """A itself."""
        import mlx.core as mx

        for name, values in matches(self.target, source):
            target[fill(self.source, values)] = -mx.exp(source.pop(name).T)
