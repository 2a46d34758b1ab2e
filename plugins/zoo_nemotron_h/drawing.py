"""The drawing of Nemotron-H's layer of a feed-forward. Imports no mlx."""

from zoo.describe.diagram import Residual


def feedforward_layer(subject):
    """One residual sum: there is no mixer."""
    return Residual((*subject.part("feedforward_norm"), *subject.part("feedforward")))
