"""How the layer of GPT-NeoX is drawn. Imports no mlx."""

from zoo.insight.diagram import Residual, parts


def parallel_layer(subject):
    """One residual sum of attention and feed-forward, each behind a norm of its own."""
    title = "Attention and feed-forward in parallel"
    return Residual((parts.side_by_side(subject, title, mixer="Attention", feedforward="Feed-forward"),))
