"""The drawing of Falcon-H1's layer. Imports no mlx."""

from zoo.describe.diagram import Residual, parts


def parallel_mixers(subject):
    """A residual sum of attention and the state space, which share a norm, then one of the feed-forward."""
    title = "Attention and state space in parallel"
    mixers = parts.side_by_side(subject, title, mixer="Attention", memory="State space")
    yield Residual((*subject.part("mixer_norm"), mixers))
    yield Residual((*subject.part("feedforward_norm"), *subject.part("feedforward")))
