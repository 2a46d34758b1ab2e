"""How OLMo 2's layer is drawn. Imports no mlx."""

from zoo.describe.diagram import Residual


def output_norm_layer(subject):
    """Two residual sums, each of a part and the norm behind it."""
    for part in ("mixer", "feedforward"):
        yield Residual((*subject.part(part), *subject.part(f"{part}_norm")))
