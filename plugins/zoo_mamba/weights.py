"""The weight rules that Mamba needs of its own. Imports no mlx."""

from dataclasses import dataclass

from zoo.weights import Rename, fill, matches


@dataclass(frozen=True)
class Depthwise(Rename):
    """A depthwise convolution's (K, E), stored with its one input channel at `axis`: (E, 1, K) or (E, K, 1)."""

    axis: int = 1

    def forward(self, source, target, recipe, join):
        """Leave the channel out; a tensor that has none stays as it is, and its shape is refused later."""
        for name, values in matches(self.source, source):
            tensor = source.pop(name)
            if len(tensor.shape) == 3 and tensor.shape[self.axis] == 1:
                tensor = (tensor[:, 0] if self.axis == 1 else tensor[:, :, 0]).T
            target[fill(self.target, values)] = tensor

    def backward(self, source, target, recipe, join):
        """Put the channel back."""
        for name, values in matches(self.target, source):
            tensor = source.pop(name).T  # (E, K)
            target[fill(self.source, values)] = tensor[:, None] if self.axis == 1 else tensor[:, :, None]


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
